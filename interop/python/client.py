"""A client of gRPC C-core, steered by a test of package interop.

It makes the RPCs that argv[2], a JSON list of {"name", "method", "metadata"}, says to
the target in argv[1], one after the other and over and over, and prints a line of JSON
for each: {"call": name, "backend": "…"} as the response header says, or
{"call": name, "code": 14, "error": "…"}. It ends when its standard input does. The
bootstrap is in the environment.
"""

import json
import sys
import threading

import grpc


def main():
    channel = grpc.insecure_channel(sys.argv[1])
    calls = json.loads(sys.argv[2])
    for call in calls:
        call["rpc"] = channel.unary_unary(
            call["method"], request_serializer=bytes, response_deserializer=bytes)
    end = threading.Event()

    def wait_for_end():
        sys.stdin.read()
        end.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    while not end.wait(0.002):
        for call in calls:
            line = {"call": call["name"]}
            metadata = list(call.get("metadata", {}).items())
            try:
                _, rpc = call["rpc"].with_call(b"", timeout=10, metadata=metadata)
                line["backend"] = dict(rpc.initial_metadata()).get("backend-id", "")
            except grpc.RpcError as error:
                line["code"] = error.code().value[0]
                line["error"] = error.details()
            print(json.dumps(line), flush=True)
    channel.close()


main()
