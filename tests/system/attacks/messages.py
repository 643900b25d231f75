"""Attacks with messages: words that are not an agent's, names that look alike, capabilities that are not there."""

from __future__ import annotations

from typing import Any

from tests.server.agents.stand_in import MODERN, call_of, envelope, handshake
from tests.system.attacks.book import check
from tests.system.attacks.scene import AGENTS, Scene
from tests.system.attacks.wire import Reply

CONTROL_WORDS = (
    "reset", "step", "state", "close", "seed", "open", "resume", "hello", "grant", "revoke", "watch", "wait_end", "cancel",
    "metadata", "schema", "make", "configure", "render", "toolbox", "told", "plan", "call", "act",
)  # fmt: skip


def error_of(reply: Reply) -> int | str | None:
    """Return the code of a refusal, whoever refused; None if there was none."""
    if not reply.body.strip():
        return None
    document = reply.json()
    if "error" in document:
        code: int = document["error"]["code"]
        return code
    result = document.get("result", {})
    return str(result["_meta"]["proctor/error"]["code"]) if result.get("isError") else None


def refused(scene: Scene, *messages: Any, session: str | None = None) -> set[int | str | None]:
    """Return the codes of the answers to some messages, none of which may do anything."""
    return {error_of(scene.agent.post(message, session=session)) for message in messages}


@AGENTS.attack
def control_words_as_tools(scene: Scene) -> str:
    """Call reset, step, state, close and all other words of the control plane as if they were tools."""
    session = scene.agent.opened()
    datas: tuple[dict[str, Any], ...] = ({}, {"seed": 1})
    calls = [call_of(word, data) for word in CONTROL_WORDS for data in datas]
    found = refused(scene, *calls, session=session)

    check(found == {-32602}, f"a control word was answered with {found}")
    return f"{len(calls)} calls: unknown tool"


@AGENTS.attack
def control_words_as_methods(scene: Scene) -> str:
    """Send reset, step and state as JSON-RPC methods, bare and with prefixes."""
    session = scene.agent.opened()
    methods = [
        *CONTROL_WORDS,
        "env/reset",
        "tools/reset",
        "session/open",
        "proctor/state",
        "rpc.discover",
        "tools/call/../reset",
    ]
    params = {"seed": 1, "session": scene.session.name}
    messages = [{"jsonrpc": "2.0", "id": 9, "method": method, "params": params} for method in methods]
    found = refused(scene, *messages, session=session)

    check(found <= {-32601, -32602}, f"a control word was answered with {found}")
    return f"{len(methods)} methods: {sorted(map(str, found))}"


@AGENTS.attack
def control_messages_on_the_agent_port(scene: Scene) -> str:
    """Post the control plane's own messages to the agent plane."""
    kinds = [{"type": word, "id": 1, "session": scene.victim.session.name, "data": {}} for word in CONTROL_WORDS]
    replies = [scene.agent.post(message) for message in kinds]
    found = {reply.status for reply in replies}

    check(found == {400}, f"a control message was answered with {found}")
    return "400: no JSON-RPC message"


@AGENTS.attack
def names_that_look_alike(scene: Scene) -> str:
    """Call tools by names that collide with real ones for a careless reader: homoglyphs, blanks, case, paths."""
    session = scene.agent.opened()
    names = (
        "sаy", "say\u200b", "say ", " say", "SAY", "Say", "ｓａｙ", "say\x00", "say\n", "say/../reset", "./say", "say;reset", "say:reset",
        "__class__", "__init__", "say.__globals__", "look\u202eyas", "", "s" * 100_000, "say()", "{say}", "%73ay", "sa\u0000y",
    )  # fmt: skip
    found = refused(scene, *(call_of(name, {"word": "alike"}) for name in names), session=session)

    check(found <= {-32602, -32600, -32700}, f"a name that looks alike was answered with {found}")
    return f"{len(names)} names: {sorted(map(str, found))}"


@AGENTS.attack
def tools_that_were_not_granted(scene: Scene) -> str:
    """Call a tool that the environment has and the grant has not."""
    with scene.arena.session() as session:
        begun = session.ask("reset", {"seed": scene.seed, "grant": {"tools": ["look"]}})
        narrow = scene.another(begun["data"]["grant"]["token"])
        mcp_session = narrow.opened()
        reply = narrow.post(call_of("say", {"word": "more"}), session=mcp_session)
        listed = [tool["name"] for tool in narrow.rpc("tools/list", session=mcp_session).json()["result"]["tools"]]
        steps = session.ask("wait_end", {"wait_seconds": 0})["data"]["steps"]

    check((error_of(reply), listed, steps) == (-32602, ["look"], 0), f"{error_of(reply)}, {listed}, {steps}")
    return "unknown tool: it is not in the list"


@AGENTS.attack
def capabilities_that_are_not_there(scene: Scene) -> str:
    """Ask for resources, prompts, completion, logging, sampling, roots, tasks and subscriptions, by name of host files."""
    session = scene.agent.opened()
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "file:///etc/shadow"}),
        ("resources/read", {"uri": f"http://127.0.0.1:{scene.arena.control_port}/metrics"}),
        ("resources/subscribe", {"uri": "file:///etc/passwd"}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "state"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "seed", "value": ""}},
        ),
        ("logging/setLevel", {"level": "debug"}),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
        ("roots/list", {}),
        ("elicitation/create", {"message": "x", "requestedSchema": {"type": "object", "properties": {}}}),
        ("tasks/list", {}),
        ("tasks/result", {"taskId": "1"}),
        ("subscriptions/listen", {}),
        ("server/debug", {}),
    )
    replies = [scene.agent.rpc(method, params, session=each) for method, params in asked for each in (session, None)]
    found = {error_of(reply) for reply in replies}
    text = b"".join(reply.body for reply in replies)

    check(b"root:" not in text and b"proctor_" not in text, "something of the host was read")
    check(None not in found, f"a capability answered: {[reply for reply in replies if error_of(reply) is None][:3]}")
    return f"{len(replies)} requests: {sorted(map(str, found))}"


@AGENTS.attack
def answers_that_nobody_asked_for(scene: Scene) -> str:
    """Send results and errors for requests that the server never made, and notifications of a server."""
    session = scene.agent.opened()
    messages: tuple[dict[str, Any], ...] = (
        *(
            {"jsonrpc": "2.0", "id": number, "result": {"roots": [{"uri": "file:///"}]}}
            for number in (0, 1, "1", 2**53)
        ),
        {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
        },
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x"}},
        {"jsonrpc": "2.0", "id": None, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "both"}},
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
        {"jsonrpc": "2.0", "method": "notifications/reset", "params": {"seed": 1}},
    )
    found = {scene.agent.post(message, session=session).status for message in messages}
    listed = [tool["name"] for tool in scene.agent.rpc("tools/list", session=session).json()["result"]["tools"]]

    check(found <= {200, 202, 400} and listed == ["look", "spell", "say"], f"{found}, {listed}")
    return f"{len(messages)} messages: {sorted(found)}, and nothing changed"


@AGENTS.attack
def metadata_of_requests(scene: Scene) -> str:
    """Fill `_meta` and the progress token with what others might believe: lists, huge texts, another's ids, traces."""
    session = scene.agent.opened()
    tokens: tuple[Any, ...] = (
        *([], {}, "x" * 200_000, 1e308, None, True, -1, scene.victim.mcp_session, "\r\ndata: x\r\n\r\n"),
    )
    codes = []
    for token in tokens:
        params = {"name": "say", "arguments": {"word": "x", "times": 0}, "_meta": {"progressToken": token}}
        codes.append(error_of(scene.agent.rpc("tools/call", {**params, "name": "no_such_tool"}, session=session)))
    metas: tuple[dict[str, Any], ...] = (
        {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "seed": 1, "proctor.view": "victim"},
        {"io.modelcontextprotocol/related-task": {"taskId": "1"}},
        {"proctor/error": {"code": "x"}, "grant": scene.victim.granted["grant"]},
        {str(number): number for number in range(5_000)},
    )
    for meta in metas:
        params = {"name": "spell", "arguments": {"text": "x", "seed": 1}, "_meta": meta}
        codes.append(error_of(scene.agent.rpc("tools/call", params, session=session)))

    check(None not in codes, f"odd metadata was taken: {codes}")
    return f"{len(codes)} calls: {sorted({str(code) for code in codes})}"


@AGENTS.attack
def headers_that_contradict_the_message(scene: Scene) -> str:
    """Say one method or tool in the headers and another in the message, and a protocol that does not exist."""
    say = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "say", "arguments": {"word": "x"}, "_meta": envelope()},
    }
    headers = (
        (("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")),
        (("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "look")),
        (("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "reset")),
        (("MCP-Protocol-Version", "9999-99-99"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "say")),
        (("MCP-Protocol-Version", "x" * 5_000), ("Mcp-Method", "tools/call"), ("Mcp-Name", "say")),
        (("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "say"), ("Mcp-Name", "look")),
    )  # fmt: skip
    replies = [scene.agent.post(say, *each) for each in headers]
    ended = scene.session.ask("wait_end", {"wait_seconds": 0})["data"]
    scene.steps = ended["steps"]

    check(all(error_of(reply) is not None for reply in replies[:4]), f"{[reply.status for reply in replies]}")
    check(scene.steps <= 1, "a contradiction was carried out more than once")
    return f"{[reply.status for reply in replies]}"


@AGENTS.attack
def greetings_that_ask_for_more(scene: Scene) -> str:
    """Greet twice, as somebody else, with capabilities of a server and versions that do not exist."""
    session = scene.agent.opened()
    params = handshake()["params"]
    greetings: tuple[dict[str, Any], ...] = (
        {**params, "protocolVersion": "0000-00-00"},
        {**params, "protocolVersion": ["x"]},
        {**params, "capabilities": {"tools": {"listChanged": True}, "experimental": {"control": {}}}},
        {**params, "clientInfo": {"name": "victim", "version": "x" * 50_000}},
        {**params, "session": scene.victim.session.name, "seed": 1},
        {},
    )
    replies = [
        scene.agent.post({**handshake(), "params": each}, session=each_in)
        for each in greetings
        for each_in in (None, session)
    ]
    told = b"".join(reply.body for reply in replies)
    scene.agent.post(call_of("reset", {}), session=session)

    check(
        b"say" in told and b'"resources"' not in told and b'"prompts"' not in told, "a greeting changed what there is"
    )
    return f"{[reply.status for reply in replies]}: tools and nothing else"
