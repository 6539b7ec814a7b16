"""Sampled tokens next to images: the answers keep theirs, and the images their places."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from openclaw_rl.proxy.conversation.bridge import Answered, Bridge
from openclaw_rl.shared.messages.normalize import ChatInput, normalize_messages
from openclaw_rl.shared.rendering.prompter import Prompter
from tests.shared.speech import system, user
from tests.shared.tiny_vision import data_url, picture, vision_folder


def test_answers_after_an_image_keep_their_tokens_and_later_images_their_places(tmp_path: Path) -> None:
    one = Prompter(vision_folder(tmp_path))
    bridge = Bridge(one.vocab)
    files = picture(96, 64), picture(64, 160, "red")
    seen = [{"type": "image_url", "image_url": {"url": data_url(file)}} for file in files]

    def asked(*messages: dict[str, Any]) -> ChatInput:
        return ChatInput(messages=normalize_messages(list(messages), blind=""))

    history = [system(), user([seen[0], {"type": "text", "text": "What is it?"}])]
    first = one.render(asked(*history))
    _, written = bridge.extend(first, None)
    answer = "It is a white square."
    letters = [token for letter in answer for token in one.tokenizer.encode(letter)]
    sampled = array("I", [*letters, one.stop_ids[0]])
    history += [{"role": "assistant", "content": answer}, user([seen[1], {"type": "text", "text": "And that?"}])]
    rendered = one.render(asked(*history))
    prompt, written = bridge.extend(rendered, Answered(written, sampled))
    ids = prompt.ids()
    assert written.how == "extended"
    assert ids[: first.length + len(sampled)] == first.ids() + sampled.tolist()
    assert one.decode(ids) == one.decode(rendered.ids())
    pad = one.vocab.added["<|image_pad|>"]
    images = prompt.placed_images()
    assert len(images) == 2
    assert all(set(ids[image.start : image.end]) == {pad} and ids[image.end] != pad for image in images)
    assert [image.end - image.start for image in images] == [
        image.end - image.start for image in rendered.placed_images()
    ]
