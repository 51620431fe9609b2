package configselector_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScript runs the cases in testdata/retries.txt with each kind of RPC, and compares what becomes of them.
func TestScript(t *testing.T) {
	t.Parallel()
	runFile(t, "testdata/retries.txt", runScript)
}

// runFile runs the cases in a file. run returns what becomes of a case with one kind of RPC, in lines that are indented.
func runFile(t *testing.T, file string, run func(t *testing.T, lines []string, k kind) string) {
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
					got := run(t, given[1:], k)
					kindsOf[got] = append(kindsOf[got], k.name)
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

// script is a case that runs.
type script struct {
	t       *testing.T
	config  worldConfig
	policy  xdsresource.RetryPolicy
	answers []answer
	picks   []string
	opts    []grpc.CallOption
	timeout time.Duration
	cancel  time.Duration // after which the application cancels the RPC; 0: never
	traced  bool
}

func newScript(t *testing.T) *script {
	return &script{t: t, answers: []answer{{}}, policy: xdsresource.RetryPolicy{
		MaxAttempts: 3, Codes: xdsresource.NewCodeSet(codes.Unavailable, codes.Internal), BaseBackoff: ms, MaxBackoff: ms,
	}}
}

func runScript(t *testing.T, lines []string, k kind) string {
	s := newScript(t)
	for _, line := range lines {
		words := strings.Fields(line)
		switch words[0] {
		case "retry":
			s.each(words, s.setPolicy)
		case "rpc":
			s.each(words, s.setRPC)
		case "server":
			s.answers = nil
			for _, word := range words[1:] {
				s.answers = append(s.answers, s.answer(word))
			}
		case "picker":
			s.picks = words[1:]
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	return s.run(k)
}

func (s *script) each(words []string, set func(key, value string)) {
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		set(key, value)
	}
}

func (s *script) setPolicy(key, value string) {
	p := &s.policy
	header := func() []matching.Header {
		name, want, _ := strings.Cut(value, ":")
		return []matching.Header{
			{Name: "x-never", Kind: matching.HeaderPresent, Present: true},
			{Name: name, String: matching.NewString(matching.StringExact, want, false)},
		}
	}
	switch key {
	case "attempts":
		p.MaxAttempts = s.number(value)
	case "on":
		p.Codes = 0
		if value != "" {
			p.Codes = xdsresource.NewCodeSet(s.code(value))
		}
	case "backoff":
		p.BaseBackoff = s.duration(value)
		p.MaxBackoff = p.BaseBackoff
	case "timeout":
		p.PerTryTimeout = s.duration(value)
	case "idle":
		p.PerTryIdleTimeout = s.duration(value)
	case "hedge":
		p.Hedges = true
	case "connect-failure":
		p.ConnectFailure = true
	case "no-response":
		p.NoResponse = true
	case "response":
		p.RetriableHeaders = header()
	case "request":
		p.RequestHeaders = header()
	default:
		s.t.Fatalf("a retry policy has no %q", key)
	}
}

func (s *script) setRPC(key, value string) {
	switch key {
	case "timeout":
		s.timeout = s.duration(value)
	case "cancel":
		s.cancel = s.duration(value)
	case "buffer":
		s.opts = append(s.opts, grpc.MaxRetryRPCBufferSize(s.number(value)))
	case "static":
		s.opts = append(s.opts, grpc.StaticMethod())
	case "trace":
		s.traced = true
	case "max":
		s.config.dial = append(s.config.dial, grpc.WithMaxCallAttempts(s.number(value)))
	case "disabled":
		s.config.dial = append(s.config.dial, grpc.WithDisableRetry())
	default:
		s.t.Fatalf("an RPC has no %q", key)
	}
}

// answer parses "1.5s:UNAVAILABLE,header,key=value", each part of which may be missing.
func (s *script) answer(word string) (a answer) {
	if word == "hangs" {
		return hangs
	}
	if after, rest, ok := strings.Cut(word, ":"); ok {
		a.after, word = s.duration(after), rest
	}
	parts := strings.Split(word, ",")
	a.code = s.code(parts[0])
	for _, part := range parts[1:] {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "header":
			a.header = true
		case "reads":
			a.reads = true
		case "pushback":
			a.trailer = append(a.trailer, "grpc-retry-pushback-ms", value)
		default:
			a.trailer = append(a.trailer, key, value)
		}
	}
	return a
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	xdstest.NoError(s.t, err)
	return n
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	xdstest.NoError(s.t, err)
	return d
}

func (s *script) code(name string) (c codes.Code) {
	xdstest.NoError(s.t, c.UnmarshalJSON([]byte(strconv.Quote(name))))
	return c
}

// reasons are what a picker may answer, beside "ok".
var reasons = map[string]struct {
	fail rpctrace.Reason
	code codes.Code
}{
	"none": {code: codes.Unavailable}, "exhausted": {code: codes.ResourceExhausted}, "unreachable": {rpctrace.Unreachable, codes.Unavailable},
	"lost": {rpctrace.Unreachable, codes.Unavailable}, "dropped": {rpctrace.Dropped, codes.Unavailable}, "refused": {rpctrace.MaxRetries, codes.Unavailable},
}

// run makes the RPC, and returns what becomes of it.
func (s *script) run(k kind) string {
	var m meter
	var mu sync.Mutex
	var trace []string
	var retries, ended, picks atomic.Int64
	seen := new(attempts)
	route := toC()
	route.Retry = &s.policy
	s.config.routes, s.config.metrics, s.config.handle = []*xdsresource.Route{route}, &m, seen.handle(s.answers)
	w := newWorld(s.t, s.config)
	w.ch.Observe = func() rpctrace.Observer { return &observer{&retries, &ended} }
	var before []context.Context // of attempts that are not hedged
	w.pick = func(ctx context.Context) error {
		n := int(picks.Add(1))
		if s.policy.LimitsTries() && !s.policy.Hedges {
			for i, attempt := range before {
				if attempt.Err() == nil {
					s.t.Errorf("%s: attempt %d has ended, its context has not", k.name, i+1)
				}
			}
			before = append(before, ctx)
		}
		if len(s.picks) == 0 {
			return nil
		}
		why, ok := reasons[s.picks[min(n, len(s.picks))-1]]
		if !ok {
			return nil
		}
		d := decision.FromContext(ctx)
		if a := d.Attempt(); n > 1 && (a == nil || !a.Retry) {
			s.t.Error("the picker does not know that it picks for a retry")
		}
		d.Fail(why.fail)
		if s.picks[min(n, len(s.picks))-1] == "lost" {
			d.Sent("endpoint")
		}
		return status.Error(why.code, "no endpoint")
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(s.t.Context(), "idempotent", "yes"))
	if s.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
	}
	defer cancel()
	if s.cancel > 0 {
		time.AfterFunc(s.cancel, cancel)
	}
	if s.traced {
		add := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			trace = append(trace, fmt.Sprintf(format, args...))
		}
		ctx = rpctrace.With(ctx, &rpctrace.Trace{
			Retried:      func(r rpctrace.Retry) { add("%d after %v", r.Attempt, status.Code(r.Err)) },
			AttemptEnded: func(a rpctrace.Attempt) { add("%d ended %v", a.Number, status.Code(a.Err)) },
		})
	}
	begin := time.Now()
	var p peer.Peer
	r := w.makeRPC(ctx, k, "/s/m", []string{"one ", "two ", "three"}, append(s.opts, grpc.Peer(&p))...)
	if (p.Addr != nil) != (len(seen.sorted()) > 0) {
		s.t.Errorf("%s: the application gets the peer %v", k.name, p.Addr)
	}
	out := "\n  sent: " + cmp.Or(strings.Join(seen.sorted(), ", "), "never")
	if len(s.picks) > 0 {
		out += fmt.Sprintf("\n  picks: %d", picks.Load())
	}
	out += fmt.Sprintf("\n  %v: %s", time.Since(begin).Round(50*ms), s.ended(k, r, seen))
	for _, wait := range []time.Duration{0, time.Minute} {
		if wait > 0 {
			time.Sleep(wait)
			synctest.Wait()
		}
		// The deadline of the RPC is the server's too, and either may end it first.
		if len(r.finished) != 1 || status.Code(r.finished[0]) != status.Code(r.err) || s.timeout == 0 && fmt.Sprint(r.finished[0]) != fmt.Sprint(r.err) {
			s.t.Errorf("%s: OnFinish got %v, want once %v", k.name, r.finished, r.err)
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if slices.Contains(seen.ends, "") {
		s.t.Errorf("%s: attempts ended %q", k.name, seen.ends)
	}
	sums, sent := m.taken()
	if int64(sent) != retries.Load() || ended.Load() != 1 {
		s.t.Errorf("%s: the observer has %d retries and %d ends, want %v and 1", k.name, retries.Load(), ended.Load(), sent)
	}
	for _, lines := range [][]string{sums, slices.Sorted(slices.Values(trace))} {
		if len(lines) > 0 {
			out += "\n  " + strings.Join(lines, ", ")
		}
	}
	return out
}

// ended returns how the RPC has ended, and checks that all that the application gets is of the same attempt.
func (s *script) ended(k kind, r *result, seen *attempts) string {
	if r.err != nil {
		e := status.Convert(r.err)
		if e.Code() == codes.DeadlineExceeded && !strings.HasPrefix(e.Message(), "dynxds:") {
			return fmt.Sprint(e.Code()) // The message depends on who finds out first.
		}
		return fmt.Sprintf("%v: %s (of %s)", e.Code(), e.Message(), cmp.Or(strings.Join(r.trailer["attempt"], " "), "none"))
	}
	by := strings.Join(r.trailer["attempt"], " ")
	want := "one two three"
	if k.desc == nil || !k.desc.ClientStreams {
		want = "one "
	}
	if !slices.Equal(r.replies, []string{want + " by " + by}) || !slices.Equal(r.header["attempt"], []string{by}) {
		s.t.Errorf("%s: replies %q, header %v, trailer %v", k.name, r.replies, r.header, r.trailer)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.ends[s.number(by)] != "answered" {
		s.t.Errorf("%s: attempts ended %q", k.name, seen.ends)
	}
	return "OK by " + by
}

// taken returns the metrics as "retries 2", and the number of attempts in them.
func (m *meter) taken() (lines []string, sent float64) {
	m.Change(func() {
		for _, name := range slices.Sorted(maps.Keys(m.sums)) {
			words := strings.Fields(name)
			short := strings.TrimPrefix(words[0], "grpc.client.call.")
			if short != "retry_delay" {
				sent += m.sums[name]
			}
			lines = append(lines, fmt.Sprintf("%s of %s: %.1f", short, words[1], m.sums[name]))
		}
	})
	return lines, sent
}

const ms = time.Millisecond

// answer is how a server answers an attempt.
type answer struct {
	after   time.Duration
	code    codes.Code
	trailer []string
	header  bool // response headers are sent at once
	reads   bool // a message is received before
}

var hangs = answer{after: time.Hour}

// attempts is what a server sees of the attempts of an RPC, in a bubble.
type attempts struct {
	mu     sync.Mutex
	start  time.Time
	begins []string // after which time, and with which grpc-previous-rpc-attempts
	ends   []string // how: "answered" or "canceled"
}

// sorted returns the beginnings. Those that are sent at the same time arrive in any order.
func (a *attempts) sorted() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.begins))
}

func (a *attempts) handle(answers []answer) func(int, grpc.ServerStream) error {
	a.start = time.Now()
	return func(n int, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		a.mu.Lock()
		a.begins = append(a.begins, strings.TrimSpace(fmt.Sprintf("%v %s", time.Since(a.start).Round(10*ms), strings.Join(md["grpc-previous-rpc-attempts"], ","))))
		a.ends = append(a.ends, "")
		a.mu.Unlock()
		how := answers[min(n, len(answers)-1)]
		if how.code == codes.OK || how.header {
			_ = s.SetHeader(metadata.Pairs("attempt", fmt.Sprint(n)))
		}
		s.SetTrailer(metadata.Pairs(append(how.trailer, "attempt", fmt.Sprint(n))...))
		end := "answered"
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.ends[n] = end
		}()
		if how.reads {
			if err := s.RecvMsg(bytesOf("")); err != nil {
				return err
			}
		}
		if how.header {
			_ = s.SendHeader(nil)
		}
		select {
		case <-time.After(how.after):
		case <-s.Context().Done():
			end = "canceled"
			return s.Context().Err()
		}
		if how.code != codes.OK {
			return status.Error(how.code, fmt.Sprint("attempt ", n))
		}
		all, err := receiveAll(s)
		return errors.Join(err, s.SendMsg(bytesOf(fmt.Sprint(all, " by ", n))))
	}
}
