"""Note in /opt/kit/archives which files pip installed: {name: {version, sha256}}, of pip's own report NAME.json.

The report's addresses stay out of it: they would tell of the machine that built the image.
"""

import json
import os
import sys

with open(sys.argv[1]) as stream:
    report = json.load(stream)
noted = {}
for one in report["install"]:
    archive = one["download_info"]["archive_info"]
    digest = archive.get("hashes", {}).get("sha256") or archive["hash"].partition("=")[2]
    noted[one["metadata"]["name"]] = {"version": one["metadata"]["version"], "sha256": digest}
os.makedirs("/opt/kit/archives", exist_ok=True)
with open("/opt/kit/archives/" + os.path.basename(sys.argv[1]), "w") as stream:
    json.dump(noted, stream, indent=1, sort_keys=True)
    stream.write("\n")
