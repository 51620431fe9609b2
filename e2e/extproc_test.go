package e2e_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
)

// processor sets the header and the trailer "who" to its name, and sends messages back.
type processor struct {
	procpb.UnimplementedExternalProcessorServer
	*sideService
	who   string
	state xdstest.State
	// Guarded by state.
	streams, messages int
}

func startProcessor(t testing.TB, who string) *processor {
	t.Helper()
	p := &processor{who: who}
	p.sideService = startSide(t, func(server *grpc.Server) { procpb.RegisterExternalProcessorServer(server, p) })
	return p
}

func (p *processor) Process(s procpb.ExternalProcessor_ProcessServer) error {
	p.state.Change(func() { p.streams++ })
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if a := p.answer(r); a.GetResponse() != nil {
			if err := s.Send(a); err != nil {
				return err
			}
		}
	}
}

func (p *processor) answer(r *procpb.ProcessingRequest) *procpb.ProcessingResponse {
	a := new(procpb.ProcessingResponse)
	mutation := `header_mutation { set_headers { header { key: "who" raw_value: "` + p.who + `" } } }`
	echo := func(b *procpb.HttpBody) *procpb.BodyResponse {
		p.state.Change(func() { p.messages++ })
		return &procpb.BodyResponse{Response: &procpb.CommonResponse{BodyMutation: &procpb.BodyMutation{
			Mutation: &procpb.BodyMutation_StreamedResponse{StreamedResponse: &procpb.StreamedBodyResponse{
				Body: b.GetBody(), EndOfStream: b.GetEndOfStream(), EndOfStreamWithoutMessage: b.GetEndOfStreamWithoutMessage(),
			}},
		}}}
	}
	switch {
	case r.GetRequestHeaders() != nil:
		return with(a, `request_headers { response { %s } }`, mutation)
	case r.GetResponseHeaders() != nil:
		return with(a, `response_headers { response { %s } }`, mutation)
	case r.GetResponseTrailers() != nil:
		return with(a, `response_trailers { %s }`, mutation)
	case r.GetRequestBody() != nil:
		a.Response = &procpb.ProcessingResponse_RequestBody{RequestBody: echo(r.GetRequestBody())}
	case r.GetResponseBody() != nil:
		a.Response = &procpb.ProcessingResponse_ResponseBody{ResponseBody: echo(r.GetResponseBody())}
	}
	return a
}

const (
	processHeaders    = `processing_mode { response_trailer_mode: SEND } `
	processEverything = `processing_mode { response_trailer_mode: SEND request_body_mode: GRPC response_body_mode: GRPC } `
)

// config is an ExternalProcessor that asks the processor.
func (p *processor) config(fields string) *filterpb.ExternalProcessor {
	pb := with(new(filterpb.ExternalProcessor), `grpc_service { google_grpc { target_uri: %q } }`, p.target())
	return with(pb, "%s", fields)
}

// gRFC A93, "Filter Behavior": the processor sees each event of an RPC on one stream, and changes it.
func TestExtProcEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	for name, fields := range map[string]string{
		"headers": processHeaders, "everything": processEverything, "observed": processEverything + `observability_mode: true`,
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m, backend, p := newMesh(t), testutils.StartBackend(t, "b"), startProcessor(t, "p")
			m.serveFilters(backend, nil, xdsmsg.Filter("proc", p.config(fields)))
			cc := dialWith(t, "xds:///"+service, m.bootstrap(allowed(p)))
			var who []string
			if name != "observed" {
				who = []string{"p"}
			}
			eachKind(t, func(t *testing.T, k kind) {
				r := callFor(testutils.Context(t), cc, k)
				xdstest.NoError(t, r.err)
				xdstest.Equal(t, "metadata", who, backend.Last().Metadata["who"])
				xdstest.Equal(t, "response header", who, r.header["who"])
				xdstest.Equal(t, "trailer", who, r.trailer["who"])
			})
			// RPCs do not wait for a processor that observes.
			p.state.Await(t, "streams and messages", func() bool {
				return p.streams == len(kinds) && (name == "headers") == (p.messages == 0)
			})
			backend.Fail(testutils.TrailersOnly(status.Error(codes.Aborted, "backend")))
			r := callFor(testutils.Context(t), cc, unary)
			checkStatus(t, r.err, codes.Aborted)
			xdstest.Equal(t, "trailer", who, r.trailer["who"])
		})
	}
}

// An explanation has the services of filters with what they are asked, and the override that a route has.
func TestFilterServicesAreExplained(t *testing.T) {
	t.Parallel()
	m, service, backend := newMesh(t), ownService(t), testutils.StartBackend(t, "b")
	p, a := startProcessor(t, "p"), startAuthorizer(t)
	route := toCluster(backend.ID())
	route.TypedPerFilterConfig = map[string]*anypb.Any{
		"proc": xdsmsg.Any(with(new(filterpb.ExtProcPerRoute), `overrides { processing_mode { request_body_mode: GRPC } }`)),
	}
	m.set(clusterOf(backend.ID(), backend), xdsmsg.RouteConfig(service, service, route),
		xdsmsg.DefaultListener(service, service, xdsmsg.Filter("authz", a.config("")), xdsmsg.Filter("proc", p.config(processHeaders))))
	cc := dialWith(t, "xds:///"+service, m.bootstrap(allowed[interface{ target() string }](p, a)))
	var filters []dynxds.TraceFilter
	var decisions []string
	ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{
		FilterEnded:   func(f dynxds.TraceFilter) { filters = append(filters, f) },
		FilterDecided: func(f dynxds.TraceFilter) { decisions = append(decisions, f.Name+": "+f.Decision) },
	})
	_, err := call(ctx, cc, unary, grpc.WaitForReady(true))
	xdstest.NoError(t, err)
	e, err := explain.InProcess(ctx, explain.Request{Target: "xds:///" + service, Method: unaryMethod})
	xdstest.NoError(t, err)
	for _, want := range []string{a.target(), p.target(), `{"processing_mode":{"request_body_mode":"GRPC"}}`} {
		if encoded, err := json.Marshal(e); err != nil || !strings.Contains(string(encoded), want) {
			t.Errorf("the explanation lacks %s: %v\n%s", want, err, encoded)
		}
	}
	for _, f := range filters {
		if f.Duration <= 0 || f.Err != nil {
			t.Errorf("the trace has %+v", f)
		}
	}
	xdstest.Equal(t, "filters of the trace", 2, len(filters))
	xdstest.Equal(t, "decisions in the trace", []string{"authz: allowed", "proc: passed"}, decisions)
}
