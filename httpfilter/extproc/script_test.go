package extproc

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procpb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/testutils"
)

// text is a codec of strings.
type text struct{}

func (text) Name() string { return "text" }

func (text) Marshal(m any) (mem.BufferSlice, error) {
	s, ok := m.(*string)
	if !ok || *s == "unwritable" {
		return nil, fmt.Errorf("a %T is no text", m)
	}
	return mem.BufferSlice{mem.SliceBuffer(*s)}, nil
}

func (text) Unmarshal(data mem.BufferSlice, m any) error {
	s := string(data.Materialize())
	if s == "unreadable" {
		return fmt.Errorf("%s", s)
	}
	*m.(*string) = s
	return nil
}

// scene is an RPC with its processor and its backend, each of which does what a script says.
type scene struct {
	t      *testing.T
	fields string // of the config
	// override has the fields of that of the route.
	override string
	rpc      httpfilter.RPC
	ctx      context.Context
	cancel   context.CancelFunc
	// deadline is that of all steps.
	deadline context.Context
	app      grpc.ClientStream
	procs    chan procpb.ExternalProcessor_ProcessServer
	proc     procpb.ExternalProcessor_ProcessServer
	servers  chan grpc.ServerStream
	server   grpc.ServerStream
	// ends has what the handlers return.
	procEnds, serverEnds chan error
	decisions            chan string            // that the trace of the RPC gets
	later                map[string]chan string // steps that are under way
	target, backendAddr  string
}

func newScene(t *testing.T) *scene {
	s := &scene{
		t: t, later: map[string]chan string{}, procs: make(chan procpb.ExternalProcessor_ProcessServer, 1), servers: make(chan grpc.ServerStream, 1),
		procEnds: make(chan error), serverEnds: make(chan error), decisions: make(chan string, 2),
	}
	s.deadline = testutils.Context(t)
	s.ctx, s.cancel = context.WithCancel(rpctrace.With(s.deadline, &rpctrace.Trace{FilterDecided: func(f rpctrace.Filter) {
		s.decisions <- strings.TrimSpace(f.Decision + " " + outcome(f.Err))
	}}))
	s.target = startProcessor(t, nil, func(p procpb.ExternalProcessor_ProcessServer) error {
		s.procs <- p
		return ended(p.Context(), s.procEnds)
	})
	s.backendAddr = xdstest.Serve(t, nil, grpc.NewServer(grpc.ForceServerCodecV2(text{}), grpc.UnknownServiceHandler(func(_ any, b grpc.ServerStream) error {
		s.servers <- b
		return ended(b.Context(), s.serverEnds)
	})))
	return s
}

func ended(ctx context.Context, ends chan error) error {
	select {
	case err := <-ends:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *scene) begin(step string) {
	done := make(chan string, 1)
	s.later[step] = done
	go func() { done <- s.step(step) }()
}

func (s *scene) await(step string) string {
	select {
	case got := <-s.later[step]:
		return got
	case <-s.deadline.Done():
		for step, done := range s.later {
			select {
			case got := <-done:
				s.t.Logf("%s: it has ended with %q", step, got)
			default:
			}
		}
		s.t.Fatalf("%s: it does not end", step)
		return ""
	}
}

// step does a step, and returns what comes of it.
func (s *scene) step(line string) string {
	who, what, _ := strings.Cut(line, " ")
	what, rest, _ := strings.Cut(what, " ")
	switch who + " " + what {
	case "app starts":
		return s.start(rest)
	case "app sends":
		m := expand(rest)
		return outcome(s.app.SendMsg(&m))
	case "app floods": // until an error
		m, err := "m", error(nil)
		for err == nil {
			err = s.app.SendMsg(&m)
		}
		return outcome(err)
	case "app closes":
		return outcome(s.app.CloseSend())
	case "app receives":
		m := ""
		if err := s.app.RecvMsg(&m); err != nil {
			return outcome(err)
		}
		return shorten(m)
	case "app headers":
		md, err := s.app.Header()
		return cmp.Or(show(md), outcome(err))
	case "app trailers":
		return show(s.app.Trailer())
	case "app decision":
		select {
		case decision := <-s.decisions:
			return decision
		case <-s.deadline.Done():
			return "none"
		}
	case "app cancels":
		s.cancel()
		return ""
	case "processor receives":
		s.proc = arrived(s.ctx, s.proc, s.procs)
		r, err := s.proc.Recv()
		if err != nil {
			return outcome(err)
		}
		return summary(r)
	case "processor sends":
		s.proc = arrived(s.ctx, s.proc, s.procs)
		return outcome(s.proc.Send(answer(expand(rest))))
	case "processor passes":
		s.proc = arrived(s.ctx, s.proc, s.procs)
		return outcome(s.proc.Send(passed(rest)))
	case "processor ends":
		return s.end(s.procEnds, ending(rest))
	case "backend receives":
		s.server = arrived(s.ctx, s.server, s.servers)
		m := ""
		if err := s.server.RecvMsg(&m); err != nil {
			return outcome(err)
		}
		return shorten(m)
	case "backend headers":
		s.server = arrived(s.ctx, s.server, s.servers)
		md, _ := metadata.FromIncomingContext(s.server.Context())
		return show(md)
	case "backend sends":
		s.server = arrived(s.ctx, s.server, s.servers)
		m := expand(rest)
		return outcome(s.server.SendMsg(&m))
	case "backend answers":
		s.server = arrived(s.ctx, s.server, s.servers)
		return outcome(s.server.SendHeader(pairs(rest)))
	case "backend ends":
		s.server = arrived(s.ctx, s.server, s.servers)
		code, md, _ := strings.Cut(rest, " ")
		s.server.SetTrailer(pairs(md))
		return s.end(s.serverEnds, ending(code))
	}
	s.t.Fatalf("unknown step %q", line)
	return ""
}

func (s *scene) end(ends chan error, err error) string {
	select {
	case ends <- err:
		return ""
	case <-s.deadline.Done():
		return "has ended already"
	}
}

// arrived returns the stream of a server, and waits for it first.
func arrived[S comparable](ctx context.Context, have S, streams chan S) S {
	var none S
	if have != none {
		return have
	}
	select {
	case have = <-streams:
		return have
	case <-ctx.Done():
		runtime.Goexit() // await says which step does not end
		return none
	}
}

// start starts the RPC: "bidi", "unary", "server" or "client", and metadata.
func (s *scene) start(rest string) string {
	kind, md, _ := strings.Cut(rest, " ")
	desc := map[string]*grpc.StreamDesc{"bidi": bidi, "unary": nil, "server": {ServerStreams: true}, "client": {ClientStreams: true}}[kind]
	conn := dial(s.t, s.backendAddr)
	s.rpc = httpfilter.RPC{Method: "/s/m", Authority: "host", StreamDesc: desc, Options: []grpc.CallOption{grpc.ForceCodecV2(text{})}}
	var chain []httpfilter.Interceptor
	// Whether a stream ends by itself or is cancelled must not depend on the time that steps take.
	fields := s.fields + "deferred_close_timeout { seconds: 3600 }"
	if i := interceptorFor(s.t, httpfilter.ClientInstanceInfo{}, s.target, fields, s.override); i != nil {
		chain = append(chain, i)
	}
	app, err := httpfilter.NewNext(backend{conn}, chain...).NewStream(metadata.NewOutgoingContext(s.ctx, pairs(md)), &s.rpc)
	if s.app = app; err != nil {
		s.app = httpfilter.EndedStream(s.ctx, err, nil)
	}
	return outcome(err)
}

func pairs(list string) metadata.MD {
	md := metadata.MD{}
	for pair := range strings.FieldsSeq(list) {
		name, value, _ := strings.Cut(pair, "=")
		md.Append(name, value)
	}
	return md
}

// show lists metadata that are not gRPC's own.
func show(md metadata.MD) string {
	var list []string
	for name, values := range md {
		if name == "content-type" || name == "user-agent" || name[0] == ':' || name == "grpc-accept-encoding" {
			continue
		}
		for _, value := range values {
			list = append(list, strings.Trim(fmt.Sprintf("%s=%q", name, value), `"`))
		}
	}
	slices.Sort(list)
	return strings.ReplaceAll(strings.Join(list, " "), `="`, "=")
}

func outcome(err error) string {
	if err == nil || err == io.EOF || status.Code(err) == codes.OK {
		return map[bool]string{true: "EOF"}[err != nil]
	}
	return fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
}

func ending(code string) error {
	var c codes.Code
	if err := c.UnmarshalJSON([]byte(strconv.Quote(cmp.Or(code, "OK")))); err != nil {
		panic(err)
	}
	return status.Error(c, "as the script says")
}

// expand writes out "100*x", and shorten is its inverse.
func expand(s string) string {
	n, char, ok := strings.Cut(s, "*")
	if times, err := strconv.Atoi(n); ok && err == nil {
		return strings.Repeat(char, times)
	}
	return s
}

func shorten(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%d*%s", len(s), s[:1])
	}
	return strconv.Quote(s)
}

// passed is a message of the processor in place of another: the direction, the message or "-", and the flags.
func passed(words string) *procpb.ProcessingResponse {
	fields := strings.Fields(words)
	b := &procpb.StreamedBodyResponse{EndOfStream: slices.Contains(fields, "end"), DrainComplete: slices.Contains(fields, "drained")}
	if fields[1] != "-" {
		b.Body = []byte(expand(fields[1]))
	} else {
		b.EndOfStreamWithoutMessage = b.EndOfStream
	}
	return bodyAnswer(map[string]direction{"request": requests, "response": responses}[fields[0]], b)
}

func bodyAnswer(d direction, b *procpb.StreamedBodyResponse) *procpb.ProcessingResponse {
	r := &procpb.BodyResponse{Response: &procpb.CommonResponse{BodyMutation: &procpb.BodyMutation{
		Mutation: &procpb.BodyMutation_StreamedResponse{StreamedResponse: b},
	}}}
	if d == requests {
		return &procpb.ProcessingResponse{Response: &procpb.ProcessingResponse_RequestBody{RequestBody: r}}
	}
	return &procpb.ProcessingResponse{Response: &procpb.ProcessingResponse_ResponseBody{ResponseBody: r}}
}

// summary is what a message to the processor says.
func summary(r *procpb.ProcessingRequest) string {
	var words []string
	add := func(holds bool, format string, args ...any) {
		if holds {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	headers := func(kind string, m *corepb.HeaderMap, only bool) {
		md := metadata.MD{}
		for _, h := range m.GetHeaders() {
			md.Append(h.GetKey(), string(h.GetRawValue()))
		}
		words = append(words, strings.TrimSpace(kind+" "+show(md)))
		add(only, "end_of_stream")
	}
	bodies := func(kind string, b *procpb.HttpBody) {
		words = append(words, kind)
		add(!b.GetEndOfStreamWithoutMessage() && !b.GetDrainComplete(), "%s", shorten(string(b.GetBody())))
		add(b.GetEndOfStream(), "end_of_stream")
		add(b.GetEndOfStreamWithoutMessage(), "without_message")
		add(b.GetDrainComplete(), "drain_complete")
	}
	switch {
	case r.GetRequestHeaders() != nil:
		headers("request_headers", r.GetRequestHeaders().GetHeaders(), r.GetRequestHeaders().GetEndOfStream())
	case r.GetResponseHeaders() != nil:
		headers("response_headers", r.GetResponseHeaders().GetHeaders(), r.GetResponseHeaders().GetEndOfStream())
	case r.GetResponseTrailers() != nil:
		headers("response_trailers", r.GetResponseTrailers().GetTrailers(), false)
	case r.GetRequestBody() != nil:
		bodies("request_body", r.GetRequestBody())
	case r.GetResponseBody() != nil:
		bodies("response_body", r.GetResponseBody())
	}
	w := r.GetClientWindowUpdate()
	// What is below half a window goes with an event that may come before or after.
	add(w.GetWindowIncrementSidestreamToUpstream() >= windowSize/2, "sidestream_to_upstream %+d", w.GetWindowIncrementSidestreamToUpstream())
	add(w.GetWindowIncrementSidestreamToDownstream() >= windowSize/2, "sidestream_to_downstream %+d", w.GetWindowIncrementSidestreamToDownstream())
	for name, attributes := range r.GetAttributes() {
		words = append(words, name)
		for _, name := range slices.Sorted(maps.Keys(attributes.GetFields())) {
			words = append(words, fmt.Sprintf("%s=%v", name, attributes.AsMap()[name]))
		}
	}
	add(r.GetObservabilityMode(), "observability_mode")
	if c := r.GetProtocolConfig(); c != nil {
		words = append(words, fmt.Sprintf("[%v %v", c.GetRequestBodyMode(), c.GetResponseBodyMode()))
		f := r.GetFlowControlInit()
		add(f != nil, "%d %d %d %d", f.GetInitialWindowDownstreamToSidestream(), f.GetInitialWindowSidestreamToUpstream(),
			f.GetInitialWindowUpstreamToSidestream(), f.GetInitialWindowSidestreamToDownstream())
		words[len(words)-1] += "]"
	}
	return strings.Join(words, " ")
}

// Each scene of the script is an RPC, whose config comes first. "step &" goes on with the next step while this one is under way, and
// "done step" waits for it.
func TestScript(t *testing.T) {
	const file = "testdata/scenes.txt"
	head, rest, _ := strings.Cut(golden.Read(t, file), "\n== ")
	printed := head
	for scene := range strings.SplitSeq(rest, "\n== ") {
		printed += "\n== " + play(t, scene)
	}
	golden.Check(t, file, printed)
}

func play(t *testing.T, text string) (printed string) {
	lines := strings.Split(text, "\n")
	t.Run(lines[0], func(t *testing.T) {
		s := newScene(t)
		defer s.cancel()
		printed = lines[0]
		for _, line := range lines[1:] {
			line, _, _ = strings.Cut(line, " -> ")
			line = strings.TrimRight(line, " ")
			got := ""
			if fields, ok := strings.CutPrefix(line, "config "); ok {
				s.fields += fields + "\n"
			} else if fields, ok := strings.CutPrefix(line, "override "); ok {
				s.override = fields
			} else if step, ok := strings.CutSuffix(line, " &"); ok {
				s.begin(step)
			} else if step, ok := strings.CutPrefix(line, "done "); ok {
				got = s.await(step)
			} else if line != "" && line[0] != '#' {
				s.begin(line)
				got = s.await(line)
			}
			if got != "" {
				line = fmt.Sprintf("%-40s -> %s", line, got)
			}
			printed += "\n" + line
		}
	})
	return printed
}

func dial(t testing.TB, addr string) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecureCredentials))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}
