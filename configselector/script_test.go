package configselector_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScript runs the cases in testdata with each kind of RPC, and compares what becomes of them.
func TestScript(t *testing.T) {
	t.Parallel()
	outcomes.Look()
	for _, file := range []string{"filters", "mirrors", "retries", "routes"} {
		xdstest.Parallel(t, file, func(t *testing.T) { runFile(t, "testdata/"+file+".txt") })
	}
}

// runFile runs the cases in a file. What becomes of them is in lines that are indented.
func runFile(t *testing.T, file string) {
	cases := strings.Split(golden.Read(t, file), "\n== ")
	t.Cleanup(func() { golden.Check(t, file, strings.Join(cases, "\n== ")) }) // after the cases
	for i, text := range cases[1:] {
		title, _, _ := strings.Cut(text, "\n")
		xdstest.Parallel(t, title, func(t *testing.T) {
			var given []string
			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				if !strings.HasPrefix(line, " ") {
					given = append(given, line)
				}
			}
			kindsOf := map[string][]string{} // by what becomes of them
			for _, k := range kinds {
				synctest.Test(t, func(t *testing.T) {
					s := newScript(t, k)
					for _, line := range given[1:] {
						s.read(line)
					}
					if !s.skipped {
						got := s.run()
						kindsOf[got] = append(kindsOf[got], k.name)
					}
				})
			}
			out := strings.Join(given, "\n")
			for _, got := range slices.SortedFunc(maps.Keys(kindsOf), func(a, b string) int { return cmp.Compare(kindsOf[b][0], kindsOf[a][0]) }) {
				if len(kindsOf) > 1 {
					out += "\n  " + strings.Join(kindsOf[got], ", ")
				}
				out += got
			}
			cases[i+1] = out + "\n"
		})
	}
}

// script is a case that runs, with one kind of RPC.
type script struct {
	t        *testing.T
	kind     kind
	skipped  bool // the case is not for this kind
	config   worldConfig
	route    *xdsresource.Route
	next     *xdsresource.Route // of the next version, by which the picker routes the RPC again; nil: there is none
	policy   xdsresource.RetryPolicy
	filters  []httpfilter.Instance
	answers  []answer
	picks    []string
	mirrored string   // what servers do with mirrors
	app      []string // what the application does; nil: it sends the request, and reads
	requests []string // of app, if that is nil
	opts     []grpc.CallOption
	metadata []string
	peer     *peer.Peer    // of the RPC that the application serves
	listener time.Duration // timeout of the Listener
	timeout  time.Duration
	cancel   time.Duration // after which the application cancels the RPC; 0: never
	hooks    bool          // the RPC is traced
	silent   bool          // the trace has no hooks
	closes   bool          // the channel's resolver is closed after the RPC
	counted  bool          // what outcomes count is printed
	name     string        // of the route: "r", or one of its own, as the table of outcomes is that of the process

	w      *world
	meter  meter
	log    traceLog
	begin  time.Time
	bound  *httpfilter.HostOverride // of a filter that binds the RPC to a host
	asks   bool                     // a filter asks for the end of the RPC, which it gets in asked
	asked  result
	host   []*decision.Hosts // of the picks
	picked []context.Context // given to the picker
	notes  []string          // what happens to the application before the end

	retries, observed int // what the observer and the picker count

	mu      sync.Mutex
	got     []string // RPCs, by the server
	sent    []string // when they began, and with which grpc-previous-rpc-attempts
	ends    []string // how they ended: "answered" or "canceled"
	mirrors []string // by the server; those to one cluster in any order
}

func newScript(t *testing.T, k kind) *script {
	s := &script{t: t, kind: k, route: toC(), answers: []answer{{}}, requests: []string{"one ", "two ", "three"}, name: "r", policy: xdsresource.RetryPolicy{
		MaxAttempts: 3, Codes: xdsresource.SetOf(codes.Unavailable, codes.Internal), BaseBackoff: ms, MaxBackoff: ms,
	}}
	s.config.vh = traceHost
	return s
}

// reasons are what a picker may answer, beside "ok".
var reasons = map[string]struct {
	fail rpctrace.Reason
	code codes.Code
}{
	"none": {code: codes.Unavailable}, "exhausted": {code: codes.ResourceExhausted}, "unreachable": {rpctrace.Unreachable, codes.Unavailable},
	"lost": {rpctrace.Unreachable, codes.Unavailable}, "dropped": {rpctrace.Dropped, codes.Unavailable}, "refused": {rpctrace.MaxRetries, codes.Unavailable},
	"unknown": {code: codes.NotFound}, "refused-below": {code: codes.Unavailable},
}

// errBelow is that of an interceptor of the application below those of dynxds, of which gRPC does not know.
var errBelow = status.Error(codes.Unavailable, "refused")

// pick does what the picker does for an RPC or a mirror.
func (s *script) pick(ctx context.Context) error {
	d := decision.FromContext(ctx)
	if d.Channel != s.w.cc || d.Version != 1 || d.Method != "/s/m" {
		s.t.Errorf("a Decision is %+v", d)
	}
	if md, _ := metadata.FromOutgoingContext(ctx); md["mirror"] != nil {
		// The picker of another version sends a mirror to the same cluster, and a mirror has no trace.
		if again, err := s.w.s.Reselect(d); again != d.Cluster || err != nil || d.Trace() != nil {
			s.t.Errorf("the mirror to %s is routed again to %q, %v, and has trace %v", d.Cluster, again, err, d.Trace())
		}
		if s.mirrored == "unreachable" {
			return status.Error(codes.Unavailable, "no endpoint")
		}
		return nil
	}
	var n int
	s.locked(func() {
		for i, before := range s.picked {
			if s.policy.LimitsTries() && !s.policy.Hedges && before.Err() == nil {
				s.t.Errorf("attempt %d has ended, its context has not", i+1)
			}
		}
		s.picked = append(s.picked, ctx)
		n = len(s.picked)
		if d.Extra != nil {
			s.host = append(s.host, d.Extra.Hosts)
		}
	})
	if s.next != nil && n == 1 {
		s.again(d)
	}
	if s.route.Rewrite != nil && s.route.Rewrite.AutoHost {
		s.note("the picker sets the authority %q", d.AuthorityFor("endpoint"))
	}
	if s.bound != nil {
		host := "the first host"
		if d.Retry() {
			host = "another host"
		}
		d.SetHost(&host)
	}
	if len(s.picks) == 0 {
		return nil
	}
	pick := s.picks[min(n, len(s.picks))-1]
	why, ok := reasons[pick]
	switch {
	case pick == "late":
		time.Sleep(time.Minute)
		return nil
	case !ok:
		return nil
	case n > 1 && !d.Retry():
		s.t.Error("the picker does not know that it picks for a retry")
	}
	d.Fail(why.fail)
	if pick == "refused-below" {
		return errBelow
	}
	if pick == "lost" {
		d.Sent("endpoint")
	}
	return status.Error(why.code, "no endpoint")
}

// again routes the RPC again.
func (s *script) again(d *decision.Decision) {
	l := chainOf()
	next := s.w.ch.NewSelector(configselector.Config{
		Version: 2, Listener: &l, VirtualHost: &xdsresource.VirtualHost{Name: "host", Routes: []*xdsresource.Route{s.next}}, RouteConfigName: "routes",
	})
	cluster, err := next.Reselect(d)
	s.note("%s", strings.TrimSuffix(fmt.Sprintf("routed again to %q, %v: %s", cluster, status.Code(err), status.Convert(err).Message()), ": "))
}

func (s *script) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// run makes the RPC, and returns what becomes of it.
func (s *script) run() string {
	if s.counted {
		s.name = rand.Text()
	}
	s.route.Name = s.name
	if s.config.routes == nil {
		s.config.routes = []*xdsresource.Route{s.route}
	}
	retried := s.route.Retry != nil
	s.config.listener, s.config.metrics, s.config.handle = chainOf(s.filters...), &s.meter, s.handle
	s.config.listener.MaxStreamDuration = s.listener
	s.begin = time.Now()
	s.w = newWorld(s.t, s.config)
	s.w.pick = s.pick
	if retried {
		s.w.ch.Observe = func() rpctrace.Observer { return s }
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), s.metadata...))
	if s.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
	}
	defer cancel()
	if s.cancel > 0 {
		time.AfterFunc(s.cancel, cancel)
	}
	if s.hooks {
		ctx = rpctrace.With(ctx, s.log.trace())
	}
	if s.silent {
		ctx = rpctrace.With(ctx, new(rpctrace.Trace))
	}
	if s.peer != nil {
		ctx = peer.NewContext(ctx, s.peer)
	}
	var p peer.Peer
	opts := append(s.opts, grpc.Peer(&p), grpc.OnFinish(func(err error) {
		if s.kind.desc != nil && err == nil && !retried && len(s.picked) > 0 && s.picked[0].Err() != nil {
			s.t.Error("the context of the stream has ended when OnFinish is called")
		}
		// Metrics of streams are recorded then. Those of unary RPCs are when the RPC returns.
		if s.counted && s.kind.desc != nil && outcomesOf(s.name).InFlight != 0 {
			s.t.Error("the RPC is in flight when OnFinish is called")
		}
	}))
	r := s.makeRPC(ctx, cancel, opts)
	took := time.Since(s.begin).Round(50 * ms)
	synctest.Wait()
	if s.kind.desc != nil && (len(s.filters) > 0 || s.bounded()) && len(s.picked) > 0 && s.picked[0].Err() == nil {
		s.t.Error("the context of the stream goes on")
	}
	if s.closes {
		s.w.cc.Close()
	}
	if !retried { // Attempts end with the RPC, and not only with its context.
		cancel()
	}
	out := s.attempts(retried)
	for _, note := range s.notes {
		out += "\n  " + note
	}
	out += fmt.Sprintf("\n  %v: %s", took, s.ended(r, retried))
	for _, md := range []metadata.MD{r.header, r.trailer} {
		for _, name := range []string{"h", "t", "k", "r", "location"} {
			if md[name] != nil {
				out += fmt.Sprintf(" %s: %s", name, strings.Join(md[name], " "))
			}
		}
	}
	if p.Addr == nil {
		out += " no peer"
	}
	if s.bound != nil {
		out += fmt.Sprintf(" at %s of %s", s.bound.Host(), s.bound.Cluster())
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	s.check(r, p)
	if s.policy.Hedges { // Attempts beside others end in any order.
		slices.Sort(s.log.lines)
	}
	for _, lines := range [][]string{s.got, slices.Sorted(slices.Values(s.mirrors)), s.sums(), s.log.lines} {
		if len(lines) > 0 {
			out += "\n  " + strings.Join(lines, "\n  ")
		}
	}
	if s.counted {
		o := outcomesOf(s.name)
		out += fmt.Sprintf("\n  counted: %v of %d to %q, %d in flight, %d retries", o.Codes, o.Started, o.Cluster, o.InFlight, o.Retries)
	}
	return strings.ReplaceAll(out, s.name, "r")
}

// bounded reports whether the route or the Listener bounds the duration of the RPC.
func (s *script) bounded() bool {
	if d := s.route.MaxStreamDuration; d != nil {
		return *d > 0
	}
	return s.listener > 0
}

// attempts returns what the server and the picker see of the attempts of an RPC that may be retried.
func (s *script) attempts(retried bool) (out string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if retried {
		// Those that are sent at the same time arrive in any order.
		out += "\n  sent: " + cmp.Or(strings.Join(slices.Sorted(slices.Values(s.sent)), ", "), "never")
	}
	if len(s.picks) > 0 {
		out += fmt.Sprintf("\n  picks: %d", len(s.picked))
		if len(s.host) > 0 && s.host[0] != nil {
			out += fmt.Sprintf(", up to %d times for another host", s.host[0].Picks)
		}
	}
	return out
}

// ended returns how the RPC has ended. That all that the application gets is of the same attempt is checked.
func (s *script) ended(r *result, retried bool) string {
	by := ""
	if retried {
		by = strings.Join(r.trailer["attempt"], " ")
	}
	if e := status.Convert(r.err); r.err != nil {
		switch {
		case e.Code() == codes.DeadlineExceeded && !strings.HasPrefix(e.Message(), "dynxds:"):
			return fmt.Sprint(e.Code()) // The message depends on who finds out first.
		case retried:
			return fmt.Sprintf("%v: %s (of %s)", e.Code(), e.Message(), cmp.Or(by, "none"))
		}
		return fmt.Sprintf("%v: %s", e.Code(), e.Message())
	}
	out := "OK"
	for _, reply := range r.replies {
		// Which RPC it answers is not known if there are several that are no retries.
		text, answered, _ := strings.Cut(reply, " by ")
		if retried && (answered != by || !slices.Equal(r.header["attempt"], []string{by})) {
			s.t.Errorf("replies %q, header %v, trailer %v", r.replies, r.header, r.trailer)
		}
		if len(r.replies) != 1 || text != s.request() {
			out += fmt.Sprintf(" %q", text)
		}
	}
	if retried {
		out += " by " + by
	}
	return out
}

// check checks what holds for every RPC.
func (s *script) check(r *result, p peer.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The deadline of the RPC is the server's too, and either may end it first.
	if len(r.finished) != 1 || status.Code(r.finished[0]) != status.Code(r.err) || s.timeout == 0 && fmt.Sprint(r.finished[0]) != fmt.Sprint(r.err) {
		s.t.Errorf("OnFinish got %v, want once %v", r.finished, r.err)
	}
	if slices.Contains(s.ends, "") {
		s.t.Errorf("attempts ended %q", s.ends)
	}
	for _, h := range s.host {
		if h != s.host[0] {
			s.t.Error("an attempt does not know the hosts of others")
		}
	}
	if a := &s.asked; s.asks && (!maps.EqualFunc(a.header, r.header, slices.Equal) || !maps.EqualFunc(a.trailer, r.trailer, slices.Equal) || len(a.finished) == 0) {
		s.t.Errorf("the filter gets %v, %v and %d calls of OnFinish, the application %v, %v", a.header, a.trailer, len(a.finished), r.header, r.trailer)
	}
}

// sums returns the metrics, and compares them with what the observer has counted.
func (s *script) sums() (lines []string) {
	resent := 0.0
	s.meter.Change(func() {
		for _, name := range slices.Sorted(maps.Keys(s.meter.sums)) {
			words := strings.Fields(name)
			short := strings.TrimPrefix(words[0], "grpc.client.call.")
			if short == "retries" || short == "hedges" {
				resent += s.meter.sums[name]
			}
			lines = append(lines, fmt.Sprintf("%s of %s: %.1f", short, words[1], s.meter.sums[name]))
		}
	})
	if s.route.Retry != nil && (s.observed != 1 || float64(s.retries) != resent) {
		s.t.Errorf("the observer has %d retries and %d ends, want %v and 1", s.retries, s.observed, resent)
	}
	if len(lines) > 0 {
		lines = []string{strings.Join(lines, ", ")}
	}
	return lines
}

// The script is the observer of its RPC.

func (*script) Routed(rpctrace.Route) {}
func (*script) Picked(rpctrace.Pick)  {}
func (s *script) Resending() func()   { return func() { s.locked(func() { s.retries++ }) } }
func (s *script) Ended(error)         { s.locked(func() { s.observed++ }) }

// request returns all messages of the request, joined.
func (s *script) request() (all string) {
	if s.app == nil {
		all = s.requests[0]
		if s.kind.desc != nil && s.kind.desc.ClientStreams {
			all = strings.Join(s.requests, "")
		}
	}
	for _, word := range s.app {
		if verb, value, _ := strings.Cut(word, "="); verb == "send" || verb == "prepared" {
			all += s.message(value)
		}
	}
	return all
}

// message returns a message of a script: "x*1000" is long.
func (s *script) message(word string) string {
	text, times, long := strings.Cut(word, "*")
	if long {
		text = strings.Repeat(text, s.number(times))
	}
	return text
}

// makeRPC makes the RPC as the application does. It uses one message again and again.
func (s *script) makeRPC(ctx context.Context, cancel func(), opts []grpc.CallOption) *result {
	if s.app == nil {
		return s.w.makeRPC(ctx, s.kind, "/s/m", s.requests, opts...)
	}
	stream, r := s.w.open(ctx, s.kind, "/s/m", opts, "")
	m := bytesOf("")
	for _, word := range s.app {
		if r.err != nil {
			return r
		}
		verb, value, _ := strings.Cut(word, "=")
		switch verb {
		case "send":
			m.Value = append(m.Value[:0], s.message(value)...)
			if err := stream.SendMsg(m); err != nil {
				s.note("%v: cannot send: %v", time.Since(s.begin).Round(50*ms), err)
			}
			synctest.Wait()
		case "prepared":
			var p grpc.PreparedMsg
			r.err = errors.Join(p.Encode(stream, bytesOf(value)), stream.SendMsg(&p))
		case "header":
			md, err := stream.Header()
			s.note("%v: header of %v, %v", time.Since(s.begin).Round(50*ms), md["attempt"], err)
		case "sleep":
			time.Sleep(s.duration(value))
			synctest.Wait()
		case "cancel":
			cancel()
		case "close":
			r.err = stream.CloseSend()
		case "read":
			m.Value = append(m.Value[:0], "used again"...)
			r.read(stream, s.kind)
			if err := stream.RecvMsg(m); err != cmp.Or(r.err, io.EOF) {
				s.t.Errorf("after the end: %v", err)
			}
		default:
			s.t.Fatalf("an application cannot %q", word)
		}
	}
	return r
}

func (s *script) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

const ms = time.Millisecond
