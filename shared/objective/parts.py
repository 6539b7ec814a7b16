"""Parts of an answer, as samples of their own."""

from __future__ import annotations

import msgspec

from openclaw_rl.shared.records import Sample, TeacherScores, VersionSpan


def part_of(sample: Sample, begin: int, end: int) -> Sample:
    """`sample` with tokens `begin` to `end` of its answer alone. Its loss is that of these tokens: the reward, the
    advantage and the weight stay. The prompts stay too, so only the beginning of an answer is one that was given.
    """
    if begin <= 0 and end >= len(sample.response_ids):
        return sample
    taught = sample.taught
    return msgspec.structs.replace(
        sample,
        response_ids=sample.response_ids[begin:end],
        logprobs=sample.logprobs[begin:end],
        versions=[
            VersionSpan(span.version, max(span.start, begin) - begin, min(span.end, end) - begin)
            for span in sample.versions
            if span.start < end and span.end > begin
        ],
        taught=None if taught is None else TeacherScores(taught.logprobs[begin:end], taught.top[begin:end]),
    )
