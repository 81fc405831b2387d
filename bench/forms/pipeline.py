"""The `pipeline("text-generation")` object on the job's prompt, one call a text. Options: bench/texts.py."""

from bench import texts


def run(job, loaded, say):
    import transformers

    tokenizer = texts.tokenizer_of(job)
    pipeline = transformers.pipeline("text-generation", model=loaded.model, tokenizer=tokenizer, device=loaded.device)
    seen = {}
    generate = loaded.model.generate

    def watched(*arguments, **named):
        """The pipeline hands out texts alone, so the ids are taken where they come from."""
        output = generate(*arguments, **named)
        ids = named.get("input_ids", arguments[0] if arguments else None)
        seen["ids"], seen["new"] = ids, output[:, ids.shape[1]:]
        return output

    loaded.model.generate = watched
    text = texts.rendered(job, tokenizer, job.prompt["text"])

    def call(arguments):
        pipeline(text, **arguments)
        return seen["new"].tolist()

    measurements, _, figures = texts.time_runs(job, tokenizer, call, say)
    loaded.model.generate = generate
    figures["prompt_tokens"] = figures["padded_prompt_tokens"] = int(seen["ids"].numel())
    same = seen["ids"].tolist() == loaded.input_ids.tolist()
    return measurements, seen["new"] if same else None, figures
