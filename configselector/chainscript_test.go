package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// TestChainScripts runs the cases in testdata with filters and mirrors with each kind of RPC, and compares what becomes of them.
func TestChainScripts(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"filters", "mirrors"} {
		xdstest.Parallel(t, file, func(t *testing.T) { runFile(t, "testdata/"+file+".txt", runChain) })
	}
}

// chain is a case with filters or mirrors.
type chain struct {
	*script
	kind     kind
	filters  []httpfilter.Instance
	route    *xdsresource.Route
	mirrored string   // what servers do with mirrors
	metadata []string // of the RPC

	xdstest.State
	got     []string // RPCs, by the server
	mirrors []string // mirrors, by the server; those to one cluster in any order
}

func runChain(t *testing.T, lines []string, k kind) string {
	c := &chain{script: newScript(t), kind: k, route: toC()}
	c.config.vh = traceHost
	for _, line := range lines {
		words := strings.Fields(line)
		switch words[0] {
		case "retry":
			c.route.Retry = &c.policy
			c.each(words, c.setPolicy)
		case "filters":
			for _, word := range words[1:] {
				c.filters = append(c.filters, c.filter(word))
			}
		case "route":
			c.each(words, c.setRoute)
		case "mirror":
			c.route.Mirrors = append(c.route.Mirrors, xdsresource.Mirror{Headers: edits("mirror", true, fmt.Sprint(len(c.route.Mirrors)))})
			c.each(words, c.setMirror)
		case "mirrored":
			c.mirrored = words[1]
		case "rpc":
			c.each(words, c.setChainRPC)
		case "server":
			c.answers = nil
			for _, word := range words[1:] {
				c.answers = append(c.answers, c.answer(word))
			}
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	return c.run()
}

func (c *chain) setRoute(key, value string) {
	switch key {
	case "timeout":
		d := c.duration(value)
		c.route.MaxStreamDuration = &d
	case "authority":
		c.route.Rewrite = &xdsresource.Rewrite{Authority: value}
	case "response":
		c.route.Headers = &xdsresource.HeaderMutations{Response: edits(value, false, "route")}
	case "answers":
		c.route.Action = &xdsresource.DirectResponse{Code: c.code(value)}
	case "none":
		c.config.routes = []*xdsresource.Route{}
	default:
		c.t.Fatalf("a route has no %q", key)
	}
}

func (c *chain) setMirror(key, value string) {
	m := &c.route.Mirrors[len(c.route.Mirrors)-1]
	switch key {
	case "cluster":
		m.Cluster = value
	case "header":
		m.Header = value
	case "shadow":
		m.ShadowSuffix = true
	case "authority":
		m.Authority = value
	case "permillion":
		n := uint32(c.number(value))
		m.FractionPerMillion = &n
	default:
		c.t.Fatalf("a mirror has no %q", key)
	}
}

func (c *chain) setChainRPC(key, value string) {
	switch key {
	case "authority":
		c.opts = append(c.opts, grpc.CallAuthority(value))
	case "metadata":
		name, value, _ := strings.Cut(value, ":")
		c.metadata = append(c.metadata, name, value)
	case "secure":
		c.config.secure = true
	default:
		c.setRPC(key, value)
	}
}

// deafStream fails to send.
type deafStream struct{ grpc.ClientStream }

func (deafStream) SendMsg(any) error { return context.Canceled }

// failures are errors of filters.
var failures = map[string]error{
	"status": status.Error(codes.ResourceExhausted, "why"), "wrapped": fmt.Errorf("filter: %w", status.Error(codes.Aborted, "why")),
	"context": context.DeadlineExceeded, "plain": errors.New("why"), "nothing": nil,
}

// filter returns the filter that a word like "name:verb=value" describes. One without a verb appends its name to the header "via".
func (c *chain) filter(word string) httpfilter.Instance {
	name, rest, _ := strings.Cut(word, ":")
	verb, value, _ := strings.Cut(rest, "=")
	send := func(ctx context.Context, next httpfilter.Next, rpc *httpfilter.RPC) {
		s, err := next.NewStream(ctx, rpc)
		xdstest.NoError(c.t, errors.Join(err, httpfilter.Exchange(s, bytesOf("other"), bytesOf(""))))
	}
	return filterOf(name, func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		extra := rpc.Clone()
		switch verb {
		case "":
			ctx = metadata.AppendToOutgoingContext(ctx, "via", name)
		case "fails":
			return nil, failures[value]
		case "answers":
			return httpfilter.EndedStream(ctx, status.Error(c.code(value), "why"), metadata.Pairs("k", "v")), nil
		case "unary":
			return httpfilter.UnaryInterceptor(func(ctx context.Context, _ *httpfilter.RPC, _, _ any, invoke func(context.Context) error) error {
				return invoke(ctx)
			}).NewStream(ctx, rpc, next)
		case "sets":
			if rpc.Method != "/s/m" || rpc.Cluster != "c" || rpc.StreamDesc != c.kind.desc {
				c.t.Errorf("the filter sees %+v", rpc)
			}
			rpc.Method, rpc.Authority = "/t/n", value
		case "to":
			rpc.Cluster = value
		case "twice":
			first, err := next.NewStream(ctx, rpc)
			send(ctx, next, rpc)
			return first, err
		case "first": // another RPC, a clone
			extra.Method = value
			send(ctx, next, extra)
		case "late":
			time.AfterFunc(c.duration(value), func() { send(context.WithoutCancel(ctx), next, extra) })
		}
		s, err := next.NewStream(ctx, rpc)
		if err != nil {
			return nil, err
		}
		switch verb {
		case "wraps":
			s = struct{ grpc.ClientStream }{s}
		case "deaf":
			s = deafStream{s}
		case "edits":
			s = httpfilter.EditResponse(s,
				func(md metadata.MD) { md.Set("h", "edited") }, func(md metadata.MD, only bool) { md.Set("t", fmt.Sprint("edited ", only)) })
		}
		return s, nil
	})
}

// handle handles RPCs as attempts are, and mirrors.
func (c *chain) handle(answers func(int, grpc.ServerStream) error) func(int, grpc.ServerStream) error {
	return func(_ int, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		md, _ := metadata.FromIncomingContext(s.Context())
		line := method + " at " + md[":authority"][0]
		for _, name := range []string{"via", "k"} {
			if md[name] != nil {
				line += fmt.Sprintf(", %s: %s", name, strings.Join(md[name], " "))
			}
		}
		if md["mirror"] != nil {
			return c.mirror(md["mirror"][0]+" "+line, s)
		}
		if d, ok := s.Context().Deadline(); ok {
			line += fmt.Sprint(", until ", time.Until(d).Round(time.Second))
		}
		n := 0
		c.Change(func() { n, c.got = len(c.got), append(c.got, line) })
		return answers(n, s)
	}
}

// mirror handles a mirror, and notes when it had the request, and when it has ended.
func (c *chain) mirror(line string, s grpc.ServerStream) error {
	begin := time.Now()
	after := func() time.Duration { return time.Since(begin).Round(time.Second) }
	all, err := receiveAll(s)
	line += fmt.Sprintf(": %q after %v", all, after())
	defer func() {
		c.Change(func() { c.mirrors = append(c.mirrors, fmt.Sprintf("%s, ended after %v", line, after())) })
	}()
	switch c.mirrored {
	case "hangs":
		<-s.Context().Done()
	case "fails":
		return status.Error(codes.Internal, "the mirror fails")
	case "talks": // for 3 s
		for range 3 {
			err = errors.Join(err, s.SendMsg(bytesOf("x")))
			time.Sleep(time.Second)
		}
		line += fmt.Sprint(", context ", s.Context().Err())
	}
	return errors.Join(err, s.SendMsg(bytesOf("ignored")))
}

// run makes the RPC, and returns what becomes of it.
func (c *chain) run() string {
	var m meter
	var log traceLog
	var given []context.Context
	if c.config.routes == nil {
		c.config.routes = named(c.route)
	}
	c.config.listener, c.config.metrics = chainOf(c.filters...), &m
	c.config.handle = c.handle(new(attempts).handle(c.answers))
	w := newWorld(c.t, c.config)
	w.pick = func(ctx context.Context) error {
		d := decision.FromContext(ctx)
		if d.Channel != w.cc || d.Version != 1 || d.Method != "/s/m" {
			c.t.Errorf("a Decision is %+v", d)
		}
		if d.Cluster == "c" {
			c.Change(func() { given = append(given, ctx) })
		} else if again, err := w.s.Reselect(d); again != d.Cluster || err != nil || d.Trace() != nil {
			// The picker of another version sends a mirror to the same cluster, and a mirror has no trace.
			c.t.Errorf("the mirror to %s is routed again to %q, %v, and has trace %v", d.Cluster, again, err, d.Trace())
		}
		return nil
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), c.metadata...)
	cancel := context.CancelFunc(func() {})
	if c.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
	}
	if c.traced {
		ctx = rpctrace.With(ctx, log.trace())
	}
	var p peer.Peer
	begin := time.Now()
	r := w.makeRPC(ctx, c.kind, "/s/m", []string{"one ", "two ", "three"}, append(c.opts, grpc.Peer(&p))...)
	cancel()
	out := fmt.Sprintf("\n  %v: ", time.Since(begin).Round(50*ms))
	if e := status.Convert(r.err); r.err != nil {
		out += fmt.Sprintf("%v: %s", e.Code(), e.Message())
	} else {
		out += "OK"
		for _, reply := range r.replies { // Which RPC it answers is told by what the server has got.
			text, _, _ := strings.Cut(reply, " by ")
			out += fmt.Sprintf(" %q", text)
		}
	}
	for _, md := range []metadata.MD{r.header, r.trailer} {
		for _, name := range []string{"h", "t", "k", "r"} {
			if md[name] != nil {
				out += fmt.Sprintf(" %s: %s", name, strings.Join(md[name], " "))
			}
		}
	}
	if p.Addr == nil {
		out += " no peer"
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	if len(r.finished) != 1 || status.Code(r.finished[0]) != status.Code(r.err) {
		c.t.Errorf("OnFinish got %v, want once %v", r.finished, r.err)
	}
	if c.kind.desc != nil && len(c.filters) > 0 && len(given) > 0 && given[0].Err() == nil {
		c.t.Error("the context of the stream goes on")
	}
	sums, _ := m.taken()
	for _, lines := range [][]string{c.got, slices.Sorted(slices.Values(c.mirrors)), sums, log.lines} {
		for _, line := range lines {
			out += "\n  " + line
		}
	}
	return out
}
