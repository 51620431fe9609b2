package interop_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// loggingProcessor answers events with what a case says, or passes them on, and notes them.
type loggingProcessor struct {
	procpb.UnimplementedExternalProcessorServer
	answers map[string]string
	streams chan [2][]string // requests and responses of a stream that has ended
}

func (p *loggingProcessor) Process(s procpb.ExternalProcessor_ProcessServer) error {
	var log [2][]string
	defer func() { p.streams <- log }()
	last := false // the answer to an event has ended the RPC, so what comes after it was on its way
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		events, answer := p.event(r)
		if len(events) == 0 || last {
			continue // window updates
		}
		d := 0
		if strings.HasPrefix(events[0], "response") {
			d = 1
		}
		log[d] = append(log[d], events...)
		kind, _, _ := strings.Cut(events[0], " ")
		if text, ok := p.answers[kind]; ok {
			if code, ends := strings.CutPrefix(text, "ends "); ends {
				var c codes.Code
				if err := c.UnmarshalJSON([]byte(code)); err != nil {
					return err
				}
				return status.Error(c, "as the case says")
			}
			answer = xdsmsg.With(new(procpb.ProcessingResponse), "%s", text)
		}
		if r.GetObservabilityMode() {
			continue
		}
		last = answer.GetImmediateResponse() != nil
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}

// event returns what a message says, and the answer that passes it on. The end of the requests may be with the last of them.
func (p *loggingProcessor) event(r *procpb.ProcessingRequest) (events []string, answer *procpb.ProcessingResponse) {
	answer = new(procpb.ProcessingResponse)
	// value, as gRPC-Go does not read raw_value.
	const set = `header_mutation { set_headers { header { key: "who" value: "processor" } } }`
	passed := func(b *procpb.HttpBody) *procpb.BodyResponse {
		return &procpb.BodyResponse{Response: &procpb.CommonResponse{BodyMutation: &procpb.BodyMutation{Mutation: &procpb.BodyMutation_StreamedResponse{
			StreamedResponse: &procpb.StreamedBodyResponse{Body: b.GetBody(), EndOfStream: b.GetEndOfStream(), EndOfStreamWithoutMessage: b.GetEndOfStreamWithoutMessage()},
		}}}}
	}
	attributes := ""
	for name, fields := range r.GetAttributes() {
		attributes = fmt.Sprint(" ", name, fields.AsMap())
	}
	switch {
	case r.GetRequestHeaders() != nil:
		return []string{fmt.Sprintf("request_headers%s", attributes)}, xdsmsg.With(answer, `request_headers { response { %s } }`, set)
	case r.GetResponseHeaders() != nil:
		return []string{fmt.Sprintf("response_headers %v", r.GetResponseHeaders().GetEndOfStream())}, xdsmsg.With(answer, `response_headers { response { %s } }`, set)
	case r.GetResponseTrailers() != nil:
		return []string{"response_trailers"}, xdsmsg.With(answer, `response_trailers { %s }`, set)
	case r.GetRequestBody() != nil:
		if !r.GetRequestBody().GetEndOfStreamWithoutMessage() {
			events = append(events, fmt.Sprintf("request_body %d bytes", len(r.GetRequestBody().GetBody())))
		}
		if r.GetRequestBody().GetEndOfStream() {
			events = append(events, "request_end")
		}
		answer.Response = &procpb.ProcessingResponse_RequestBody{RequestBody: passed(r.GetRequestBody())}
	case r.GetResponseBody() != nil:
		events = append(events, fmt.Sprintf("response_body %d bytes", len(r.GetResponseBody().GetBody())))
		answer.Response = &procpb.ProcessingResponse_ResponseBody{ResponseBody: passed(r.GetResponseBody())}
	}
	return events, answer
}

// procCase is a configuration, and a processor.
type procCase struct {
	name, fields string
	answers      map[string]string
	// differs is why gRPC-Go 1.85 does something else; "": it does the same.
	differs string
	// races says that the RPC ends while it is on its way to the backend, which it may reach.
	races bool
}

const (
	procHeaders = `processing_mode { response_trailer_mode: SEND } `
	procBodies  = `processing_mode { response_trailer_mode: SEND request_body_mode: GRPC response_body_mode: GRPC } `
)

var procCases = []procCase{
	{name: "headers", fields: procHeaders},
	{name: "messages", fields: procBodies},
	{name: "requests", fields: `processing_mode { request_header_mode: SKIP response_header_mode: SKIP request_body_mode: GRPC }`},
	{name: "responses", fields: `processing_mode { request_header_mode: SKIP response_header_mode: SKIP response_trailer_mode: SEND response_body_mode: GRPC }`},
	{name: "observed", fields: procBodies + `observability_mode: true deferred_close_timeout { nanos: 50000000 }`},
	{name: "attributes", fields: procHeaders + `request_attributes: ["request.path", "request.method", "request.query", "request.scheme", "request.time", "no.such"]`},
	{name: "an error", fields: procHeaders, answers: map[string]string{"request_headers": "ends 14"}},
	{name: "an error, allowed", fields: procHeaders + `failure_mode_allow: true`, answers: map[string]string{"request_headers": "ends 14"}},
	{name: "an error at the trailers", fields: procHeaders, answers: map[string]string{"response_trailers": "ends 14"}},
	{name: "an error at the trailers, allowed", fields: procHeaders + `failure_mode_allow: true`, answers: map[string]string{"response_trailers": "ends 14"}},
	{name: "an error after messages, allowed", fields: procBodies + `failure_mode_allow: true`, answers: map[string]string{"response_headers": "ends 14"}},
	{name: "OK", fields: procHeaders, answers: map[string]string{"response_headers": "ends 0"}},
	{name: "OK without a drain", fields: procBodies, answers: map[string]string{"response_headers": "ends 0"},
		differs: `A93, "Early Termination": that is a failure, as messages may be lost`},
	{name: "an immediate response", fields: procHeaders, answers: map[string]string{"request_headers": `immediate_response { grpc_status { status: 7 } details: "no" }`}},
	{name: "an immediate response without a status", fields: procHeaders, answers: map[string]string{"request_headers": `immediate_response { details: "no" }`}},
	{name: "an immediate response to response headers", fields: procBodies, answers: map[string]string{"response_headers": `immediate_response { grpc_status { status: 7 } }`}},
	{name: "an immediate response to trailers", fields: procHeaders, answers: map[string]string{"response_trailers": `immediate_response { grpc_status { status: 10 } details: "late" }`}},
	{name: "a disabled immediate response", fields: procHeaders + `disable_immediate_response: true`, answers: map[string]string{"request_headers": `immediate_response {}`}},
	{name: "CONTINUE_AND_REPLACE", fields: procHeaders, answers: map[string]string{"request_headers": `request_headers { response { status: CONTINUE_AND_REPLACE } }`}},
	{name: "another answer", fields: procHeaders, answers: map[string]string{"request_headers": `response_headers {}`}},
	{name: "a compressed message", fields: procBodies, answers: map[string]string{"request_body": `request_body { response { body_mutation { streamed_response { grpc_message_compressed: true } } } }`}, races: true},
	{name: "a header that is not valid", fields: procHeaders, answers: map[string]string{"request_headers": `request_headers { response { header_mutation { set_headers { header { key: ":path" raw_value: "v" } } } } }`}},
}

// extProcVariable makes gRPC-Go know the filter.
const extProcVariable = "GRPC_EXPERIMENTAL_XDS_EXT_PROC_ON_CLIENT"

// TestExtProcAsInGRPCGo: on the same configuration, RPCs of both clients have the same outcome, and a processor sees the same of them.
// gRPC-Go has ext_proc behind an environment variable that it reads before main, so this is a process of its own.
func TestExtProcAsInGRPCGo(t *testing.T) {
	if os.Getenv(extProcVariable) == "" {
		t.Parallel()
		cmd := exec.CommandContext(testutils.Context(t), os.Args[0], "-test.run=^TestExtProcAsInGRPCGo$", "-test.v")
		cmd.Env = append(os.Environ(), extProcVariable+"=true")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestExtProcAsInGRPCGo/headers") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, c := range procCases {
		xdstest.Parallel(t, c.name, func(t *testing.T) {
			p := &loggingProcessor{answers: c.answers, streams: make(chan [2][]string, 1)}
			server := grpc.NewServer()
			procpb.RegisterExternalProcessorServer(server, p)
			addr := xdstest.Serve(t, nil, server)
			control, backend := gocp.Start(t, gocp.AnyNames), testutils.StartBackend(t, "blue")
			w := &world{control: control, blue: backend}
			config := xdsmsg.With(new(filterpb.ExternalProcessor), `grpc_service { google_grpc { target_uri: "passthrough:///%s" } }`, addr)
			control.Set(t, append([]proto.Message{
				xdsmsg.DefaultListener(service, "routes", xdsmsg.Filter("proc", xdsmsg.With(config, "%s", c.fields))),
			}, w.initial()[1:]...)...)
			bootstrap := control.Bootstrap(testutils.TopLevel("allowed_grpc_services", map[string]any{
				"passthrough:///" + addr: map[string]any{"channel_creds": []any{map[string]any{"type": "insecure"}}},
			}))
			for kind, rpc := range map[string]func(context.Context, *grpc.ClientConn) string{"unary": unaryOutcome, "bidi": bidiOutcome} {
				of := func(peer string) []string {
					cc := dial(t, builderOf(t, peer, bootstrap), "xds:///"+service)
					result := []string{rpc(testutils.Context(t), cc)}
					if !c.races {
						result = append(result, "backend: "+strings.Join(backend.Last().Metadata["who"], " "))
					}
					for d, events := range <-p.streams {
						result = append(result, []string{"requests: ", "responses: "}[d]+strings.Join(events, ", "))
					}
					return result
				}
				got, want := of(ours), of(grpcGo)
				if same := slices.Equal(got, want); same != (c.differs == "") {
					t.Errorf("%s: dynxds\n%s\ngRPC-Go\n%s", kind, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// outcome is what becomes of an RPC. Texts of failures of the processor are each client's own.
func outcome(got int, err error) string {
	text := status.Convert(err).Message()
	if status.Code(err) == codes.Internal {
		text = ""
	}
	return fmt.Sprintf("%d messages, %v %s", got, status.Code(err), text)
}

// unaryOutcome leaves out grpc.Header and grpc.Trailer, which gRPC-Go gives what the backend has sent.
func unaryOutcome(ctx context.Context, cc *grpc.ClientConn) string {
	request := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 10)}}
	if _, err := testpb.NewTestServiceClient(cc).UnaryCall(ctx, request, grpc.WaitForReady(true)); err != nil {
		return outcome(0, err)
	}
	return outcome(1, nil)
}

// bidiOutcome has metadata of an RPC that succeeds: after a failure, Header of gRPC-Go may not return.
func bidiOutcome(ctx context.Context, cc *grpc.ClientConn) string {
	s, err := testpb.NewTestServiceClient(cc).FullDuplexCall(ctx, grpc.WaitForReady(true))
	if err != nil {
		return outcome(0, err)
	}
	for range 2 {
		_ = s.Send(&testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: 1}}})
	}
	_ = s.CloseSend()
	for got := 0; ; got++ {
		if _, err = s.Recv(); err == io.EOF {
			header, _ := s.Header()
			return fmt.Sprintf("%s, header %v, trailer %v", outcome(got, nil), header["who"], s.Trailer()["who"])
		} else if err != nil {
			return outcome(got, err)
		}
	}
}
