"""The server that the MCP conformance suite talks to: our plane and our `McpServer`, with all that the suite asks for.

What agents never get (resources, prompts, completion, logging, questions to the client) is added here to the same object
that serves them. Run as a program it prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types
from mcp.server import Server, ServerRequestContext
from mcp.shared.message import ServerMessageMetadata

from proctor.server.agents.mcp_server import AGENT_REQUEST
from tests.server.agents.stand_in import StandIn, StandInView, plane_of

Context = ServerRequestContext[Any, Any]
Wire = dict[str, Any]
PAUSE = 0.05
NO_ARGUMENTS: Wire = {"type": "object", "properties": {}}


def _chunk(kind: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")


def _picture() -> str:
    """Return one red pixel as PNG, in base64."""
    head = _chunk(b"IHDR", bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0]))
    pixel = _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + pixel + _chunk(b"IEND", b"")).decode()


def _sound() -> str:
    """Return no sound at all as WAV, in base64."""
    form = b"fmt " + (16).to_bytes(4, "little") + bytes([1, 0, 1, 0, 64, 31, 0, 0, 128, 62, 0, 0, 2, 0, 16, 0])
    body = b"WAVE" + form + b"data" + bytes(4)
    return base64.b64encode(b"RIFF" + len(body).to_bytes(4, "little") + body).decode()


PICTURE: Wire = {"type": "image", "data": _picture(), "mimeType": "image/png"}


def text(words: str) -> Wire:
    return {"type": "text", "text": words}


def resource(uri: str, kind: str, words: str) -> Wire:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


def told(*content: Wire, is_error: bool = False) -> Wire:
    return {"content": list(content), "isError": is_error, "resultType": "complete"}


def always(*content: Wire, is_error: bool = False) -> Callable[[Context, Wire], Awaitable[Wire]]:
    """Return a tool that answers the same whatever it is asked."""

    async def answer(ctx: Context, arguments: Wire) -> Wire:
        return told(*content, is_error=is_error)

    return answer


async def with_logging(ctx: Context, arguments: Wire) -> Wire:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = mcp_types.LoggingMessageNotificationParams(level="info", data=words)
        await ctx.session.send_notification(mcp_types.LoggingMessageNotification(params=params), ctx.request_id)
        await asyncio.sleep(PAUSE)
    return told(text("It logged three lines."))


async def with_progress(ctx: Context, arguments: Wire) -> Wire:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(PAUSE)
    return told(text("It told how far it was."))


async def sampling(ctx: Context, arguments: Wire) -> Wire:
    asked = mcp_types.SamplingMessage(role="user", content=mcp_types.TextContent(type="text", text=arguments["prompt"]))
    request = mcp_types.CreateMessageRequest(
        params=mcp_types.CreateMessageRequestParams(messages=[asked], max_tokens=100)
    )
    said = await ctx.session.send_request(request, mcp_types.CreateMessageResult, metadata=_beside(ctx))
    words = said.content.text if isinstance(said.content, mcp_types.TextContent) else str(said.content)
    return told(text(f"LLM response: {words}"))


async def elicited(ctx: Context, message: str, properties: Wire, required: list[str]) -> mcp_types.ElicitResult:
    schema = {"type": "object", "properties": properties, "required": required}
    return await ctx.session.elicit_form(message, schema, ctx.request_id)


async def elicitation(ctx: Context, arguments: Wire) -> Wire:
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = await elicited(ctx, arguments["message"], properties, list(properties))
    return told(text(f"User response: <action: {answer.action}, content: {json.dumps(answer.content)}>"))


async def defaults(ctx: Context, arguments: Wire) -> Wire:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return _completed(await elicited(ctx, "Look at the defaults.", properties, []))


async def enums(ctx: Context, arguments: Wire) -> Wire:
    plain = ["option1", "option2", "option3"]

    def titled(noun: str) -> list[Wire]:
        return [
            {"const": f"value{n}", "title": f"{word} {noun}"} for n, word in enumerate(("First", "Second", "Third"), 1)
        ]

    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    }
    return _completed(await elicited(ctx, "Choose.", properties, []))


def _completed(answer: mcp_types.ElicitResult) -> Wire:
    return told(text(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"))


def _beside(ctx: Context) -> ServerMessageMetadata:
    """Have a question sent on the stream of the call that asks it."""
    return ServerMessageMetadata(related_request_id=ctx.request_id)


def _taking(**arguments: str) -> Wire:
    properties = {name: {"type": "string", "description": about} for name, about in arguments.items()}
    return {"type": "object", "properties": properties, "required": list(arguments)}


MODERN_SCHEMA: Wire = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
TOOLS: dict[str, tuple[Wire, Callable[[Context, Wire], Awaitable[Wire]]]] = {
    "test_simple_text": (NO_ARGUMENTS, always(text("This is a simple text response for testing."))),
    "test_image_content": (NO_ARGUMENTS, always(PICTURE)),
    "test_audio_content": (NO_ARGUMENTS, always({"type": "audio", "data": _sound(), "mimeType": "audio/wav"})),
    "test_embedded_resource": (
        NO_ARGUMENTS,
        always(resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    ),
    "test_multiple_content_types": (
        NO_ARGUMENTS,
        always(
            text("Multiple content types test:"),
            PICTURE,
            resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
    ),
    "test_error_handling": (
        NO_ARGUMENTS,
        always(text("This tool intentionally returns an error for testing"), is_error=True),
    ),
    "test_reconnection": (NO_ARGUMENTS, always(text("Nothing was closed meanwhile."))),
    "test_tool_with_logging": (NO_ARGUMENTS, with_logging),
    "test_tool_with_progress": (NO_ARGUMENTS, with_progress),
    "test_sampling": (_taking(prompt="The prompt to send to the LLM"), sampling),
    "test_elicitation": (_taking(message="The message to show the user"), elicitation),
    "test_elicitation_sep1034_defaults": (NO_ARGUMENTS, defaults),
    "test_elicitation_sep1330_enums": (NO_ARGUMENTS, enums),
    "json_schema_2020_12_tool": (MODERN_SCHEMA, always(text("It has a schema."))),
}
CONTENTS: dict[str, Wire] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PICTURE["data"]},
    "test://watched-resource": {"mimeType": "text/plain", "text": "It never changes."},
}


async def list_tools(ctx: Context, params: Any) -> Wire:
    tools = [
        {"name": name, "description": f"For the suite: {name}.", "inputSchema": schema}
        for name, (schema, _) in TOOLS.items()
    ]
    return {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def call_tool(ctx: Context, params: mcp_types.CallToolRequestParams) -> Wire:
    # The library gets calls without their arguments.
    request: Any = ctx.request
    arguments = json.loads(request.scope[AGENT_REQUEST].arguments)
    return await TOOLS[params.name][1](ctx, arguments)


async def list_resources(ctx: Context, params: Any) -> Wire:
    listed = [
        {"uri": uri, "name": uri.removeprefix("test://"), "description": "For the suite.", "mimeType": each["mimeType"]}
        for uri, each in CONTENTS.items()
    ]
    return {"resources": listed, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def list_templates(ctx: Context, params: Any) -> Wire:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return {"resourceTemplates": [template], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def read_resource(ctx: Context, params: mcp_types.ReadResourceRequestParams) -> Wire:
    uri = str(params.uri)
    content = CONTENTS.get(uri)
    if content is None:
        name = uri.removeprefix("test://template/").removesuffix("/data")
        about = {"id": name, "templateTest": True, "data": f"Data for ID: {name}"}
        content = {"mimeType": "application/json", "text": json.dumps(about)}
    return {"contents": [{"uri": uri, **content}], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def nothing(ctx: Context, params: Any) -> Wire:
    return {}


PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


async def list_prompts(ctx: Context, params: Any) -> Wire:
    listed = [
        {
            "name": name,
            "description": "For the suite.",
            "arguments": [{"name": each, "description": "For the suite.", "required": True} for each in arguments],
        }
        for name, arguments in PROMPTS.items()
    ]
    return {"prompts": listed, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def get_prompt(ctx: Context, params: mcp_types.GetPromptRequestParams) -> Wire:
    given = params.arguments or {}
    contents: dict[str, list[Wire]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            resource(given.get("resourceUri", ""), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [PICTURE, text("Please analyze the image above.")],
    }
    messages = [{"role": "user", "content": content} for content in contents[params.name]]
    return {"messages": messages, "resultType": "complete"}


async def complete(ctx: Context, params: Any) -> Wire:
    return {
        "completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False},
        "resultType": "complete",
    }


HANDLERS: dict[str, tuple[Any, Any]] = {
    "tools/list": (mcp_types.PaginatedRequestParams, list_tools),
    "tools/call": (mcp_types.CallToolRequestParams, call_tool),
    "resources/list": (mcp_types.PaginatedRequestParams, list_resources),
    "resources/templates/list": (mcp_types.PaginatedRequestParams, list_templates),
    "resources/read": (mcp_types.ReadResourceRequestParams, read_resource),
    "resources/subscribe": (mcp_types.SubscribeRequestParams, nothing),
    "resources/unsubscribe": (mcp_types.UnsubscribeRequestParams, nothing),
    "prompts/list": (mcp_types.PaginatedRequestParams, list_prompts),
    "prompts/get": (mcp_types.GetPromptRequestParams, get_prompt),
    "completion/complete": (mcp_types.CompleteRequestParams, complete),
    "logging/setLevel": (mcp_types.SetLevelRequestParams, nothing),
}


def extended(library: Server[Any]) -> None:
    """Give the library's server all that the suite asks for."""
    for method, (params, handler) in HANDLERS.items():
        library.add_request_handler(method, params, handler)


def main() -> None:
    """Serve without a token, to pages of this machine too, and as fast as anybody asks."""
    everybody = StandIn({None: StandInView("everybody")})
    with plane_of(everybody, pages=True, clock=lambda: time.monotonic() * 1000) as plane:
        extended(plane.server.library)
        print(plane.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
