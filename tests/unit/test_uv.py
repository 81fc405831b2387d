"""scripts/pins/uv.py: uv trusts the certificates that pip does."""

import ssl
import subprocess
from types import SimpleNamespace

import pytest

from scripts import surroundings
from scripts.errors import KitError
from scripts.pins import uv


@pytest.fixture
def system(monkeypatch, tmp_path):
    """A machine that names no certificates; its own store is the folder that is returned."""
    for name in surroundings.CERTIFICATES_OF_PIP:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None, capath=str(tmp_path)))
    return tmp_path


def test_the_system_s_own_certificates_count_where_it_has_some(system):
    assert uv.trust() == {}, "uv with the certificates of a system that has none could make no connection"
    (system / "one.pem").write_text("")
    assert uv.trust() == {"UV_SYSTEM_CERTS": "1"}


def test_a_system_that_has_its_certificates_in_one_file_has_some(system, monkeypatch):
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile="/etc/pki/tls/cert.pem", capath=None))
    assert uv.trust() == {"UV_SYSTEM_CERTS": "1"}


def test_those_that_pip_was_told_come_first(system, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/proxy.pem")
    assert uv.trust() == {"SSL_CERT_FILE": "/proxy.pem"}
    monkeypatch.setenv("PIP_CERT", "/pip.pem")
    assert uv.trust() == {"SSL_CERT_FILE": "/pip.pem"}


def test_a_file_for_openssl_is_left_to_uv_which_reads_it_too(monkeypatch, tmp_path):
    for name in surroundings.CERTIFICATES_OF_PIP:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "ca.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert uv.trust() == {"UV_SYSTEM_CERTS": "1"}


def test_a_failure_is_one_line_with_its_first_and_last_word():
    done = subprocess.CompletedProcess([], 1, "", "error: Request failed\n  cause: more\n  cause: dns error\n")
    assert uv.reason(done) == "Request failed (dns error)"
    assert uv.reason(subprocess.CompletedProcess([], 2, "", "")) == "the installer ended with 2"


def test_without_uv_the_same_command_makes_the_tools_again(monkeypatch):
    monkeypatch.setattr(uv.shutil, "which", lambda _: None)
    monkeypatch.setattr(uv.sys, "executable", "/nowhere/python")
    with pytest.raises(KitError, match="the tools in .venv are gone; type rm -rf .venv and the same make command again"):
        uv.find()
