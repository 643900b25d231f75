"""What the pages say of the control protocol is what the models say and what a running server does."""

import msgspec

from proctor.models import control
from proctor.models.control import LOSSES, Code
from proctor.models.spaces import CODECS
from tests.docs.tables import page, table
from tests.server.live_server import Session, Talk, serving
from tools.make_docs import REPLIES, message_structs

PAGE = page("control-protocol.md")
READ_BY_CLIENTS_ONLY = {control.RawReply}
NOT_OF_CARTPOLE = {"metadata", "grant"}
"""A field of an observation that is not told where it is empty."""
WITH_A_LEDGER = {"head"}
"""What only a server that keeps a ledger tells."""
GOVERNED = {"outcome", "state", "obligations"}
"""What is told of the end of governed episodes only."""


def test_the_page_tells_every_code_and_what_becomes_of_the_episode() -> None:
    rows = {row[0].strip("`"): row[2] for row in table(PAGE, "| code |")}

    assert list(rows) == list(Code)
    for code in Code:
        assert (rows[code] in {"lost", "the one it speaks of is over"}) == (code in LOSSES | {Code.EXECUTION_ERROR})


def test_the_page_tells_how_every_space_is_written() -> None:
    named = {name.strip("` ") for row in table(PAGE, "| space |") for name in row[0].split(",")}

    assert named == {space.__name__ for space in CODECS}


def test_every_message_has_its_section() -> None:
    known = [*vars(control).values()]
    found = [each for each in known if isinstance(each, type) and issubclass(each, msgspec.Struct)]

    assert set(message_structs()) == set(found) - READ_BY_CLIENTS_ONLY - {msgspec.Struct}


def test_a_server_answers_every_request_as_the_page_says() -> None:
    with serving(agent_port=0) as served, Talk(served, packed=False) as talk:
        said = {"hello": talk.welcome, "open": talk.ask("open", id=1)}
        session, token = said["open"]["session"], said["open"]["data"]["resume_token"]
        said["metadata"], said["schema"] = talk.ask("metadata", id=2), talk.ask("schema", id=3)
        said["resume"] = talk.ask("resume", {"session": session, "resume_token": token}, id=4)
        said["reset"] = talk.ask("reset", {"seed": 1}, id=1, session=session)
        said["step"] = talk.ask("step", {"action": 1}, id=2, session=session, epoch=1)
        said["state"] = talk.ask("state", id=3, session=session)
        said["cancel"] = talk.ask("cancel", {"id": 2}, id=4, session=session)
        said["grant"] = talk.ask("grant", id=5, session=session, epoch=1)
        said["watch"] = talk.ask("watch", {"wait_seconds": 0}, id=6, session=session)
        said["wait_end"] = talk.ask("wait_end", {"wait_seconds": 0}, id=7, session=session)
        said["revoke"] = talk.ask("revoke", {"grant": said["grant"]["data"]["grant"]}, id=8, session=session)
        said["close"] = talk.ask("close", id=9, session=session)

        assert said.keys() == REPLIES.keys()
        for request, reply in said.items():
            kind, data = REPLIES[request][0]
            assert reply["type"] == kind
            if data is not None:
                silent = {control.ObservationReply: NOT_OF_CARTPOLE, control.Ended: GOVERNED}.get(data, set())
                assert reply["data"].keys() == set(data.__struct_fields__) - silent - WITH_A_LEDGER


def test_a_batch_is_answered_as_the_page_says() -> None:
    with serving() as served, Talk(served, packed=False) as talk:
        batch = Session(talk, num_envs=2)
        began = batch.ask("reset", {"seed": 1})
        stepped = batch.ask("step", {"actions": [0, 1]})

        fields = {
            field for kind, data in REPLIES["step"] if kind == "batch" and data for field in data.__struct_fields__
        }
        assert (began["type"], stepped["type"]) == ("batch", "batch")
        assert stepped["data"].keys() == fields - {"infos"} - WITH_A_LEDGER
