package ads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// player is a Handler that does what a test says, and a server that does so.
type player struct {
	t     *testing.T
	began time.Time
	// serve is what the server does with the stream of a number, from 1.
	serve func(number int, s *served) error

	// There may be credentials of another type than "insecure". An unreachable server takes no connection.
	credentials string
	unreachable bool
	// due are the requests, each to be sent at its time; slow is how long NextRequest takes, and slowBetter Better.
	due              []dueRequest
	slow, slowBetter time.Duration
	// better is when delta is tried.
	better []time.Duration
	atOnce bool

	mu      sync.Mutex
	notify  func()
	streams int
	// heard is what the reader of the client's stream calls, requests what the server receives.
	heard, requests []string
}

type dueRequest struct {
	at      time.Duration
	request *wire.Request
}

// served is a stream at the server.
type served struct{ grpc.ServerStream }

// send sends messages, whose texts say how Receive takes them.
func (s served) send(texts ...string) error {
	for _, text := range texts {
		if err := s.SendMsg([]byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// play runs a stream for some time, and then closes it.
func (p *player) play(t *testing.T, length time.Duration) {
	t.Helper()
	p.t, p.began = t, time.Now()
	const server = `"xds_servers": [{"server_uri": "passthrough:///server", "channel_creds": [{"type": %q}]}]`
	config, err := bootstrap.Parse("test", fmt.Appendf(nil, `{`+server+`, "authorities": {"a": {`+server+`}}}`, "insecure", cmp.Or(p.credentials, "insecure")))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := config.Authority("a")
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	s := grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodecV2(transport.Codec{}))
	go func() { _ = s.Serve(listener) }()
	defer s.Stop()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		if p.unreachable {
			return nil, errors.New("unreachable")
		}
		return listener.DialContext(ctx)
	}
	steady := backoff.Config{BaseDelay: time.Second, Multiplier: 2, MaxDelay: 8 * time.Second}
	conns := transport.NewConns(steady, []grpc.DialOption{grpc.WithContextDialer(dial)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := NewStream(ctx, p, Config{Node: &corev3.Node{Id: "me"}, Backoff: steady})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stream.Run(conns.Use(authority.Servers[0]))
	}()
	p.mu.Lock()
	p.notify = stream.Notify
	p.mu.Unlock()
	time.Sleep(length)
	stream.Close()
	<-ended
	synctest.Wait()
}

func (p *player) handle(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	p.mu.Lock()
	p.streams++
	number := p.streams
	p.mu.Unlock()
	go func() {
		for {
			var f transport.Frame
			if s.RecvMsg(&f) != nil {
				return
			}
			r := &discoveryv3.DiscoveryRequest{}
			if err := proto.Unmarshal(f.Bytes(), r); err != nil {
				p.t.Error(err)
			}
			p.note(&p.requests, strings.TrimSpace(fmt.Sprint(r.GetResourceNames(), " ", r.GetNode().GetId())))
		}
	}()
	if method == (wire.Delta{}).Method() {
		number = 0
	}
	return p.serve(number, &served{s})
}

func (p *player) note(to *[]string, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*to = append(*to, fmt.Sprint(time.Since(p.began), " ", what))
}

func (p *player) Protocol() wire.Protocol { return wire.SotW{} }

func (p *player) Opened() { p.note(&p.heard, "opened") }

func (p *player) NextRequest() (r *wire.Request, at time.Time) {
	time.Sleep(p.slow)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.due) == 0 {
		return nil, time.Time{}
	}
	first := p.due[0]
	if at := p.began.Add(first.at); time.Now().Before(at) {
		return nil, at
	}
	return first.request, time.Time{}
}

func (p *player) Sent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = p.due[1:]
}

var errReceive = errors.New("no ADS")

// Receive takes a second of virtual time to deliver what is new or a lot of work.
func (p *player) Receive(message []byte) (v Verdict, done <-chan struct{}, err error) {
	text := string(message)
	if text != "old" {
		p.note(&p.heard, text)
	}
	delivered := make(chan struct{})
	switch text {
	case "old":
		return VerdictAccepted, nil, nil
	case "broken":
		return VerdictNone, nil, errReceive
	case "never":
		return VerdictAccepted, delivered, nil
	case "rejected":
		close(delivered)
		return VerdictRejected, delivered, nil
	case "accepted":
		close(delivered)
		return VerdictAccepted, delivered, nil
	case "work":
		time.Sleep(11 * time.Second)
	}
	time.AfterFunc(time.Second, func() { close(delivered) })
	return VerdictAccepted, delivered, nil
}

func (p *player) Delivered() { p.note(&p.heard, "delivered") }

func (p *player) Reading() { p.note(&p.heard, "reading") }

func (p *player) Better() (wire.Protocol, time.Time) {
	time.Sleep(p.slowBetter)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.better) == 0 {
		return nil, time.Time{}
	}
	return wire.Delta{}, p.began.Add(p.better[0])
}

func (p *player) Tried(implemented bool) {
	p.note(&p.heard, fmt.Sprint("tried ", implemented))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.better = p.better[1:]
}

func (p *player) Ended(err error) bool {
	if s, ok := status.FromError(err); ok {
		err = errors.New(s.Message())
	}
	p.note(&p.heard, fmt.Sprint("ended: ", err))
	return p.atOnce
}

// wantHeard compares what the handler was told, with "2s opened" for a time and an event.
func (p *player) wantHeard(want ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if diff := gocmp.Diff(want, p.heard); diff != "" {
		p.t.Errorf("the handler was told (-want +got):\n%s", diff)
	}
}

var errBye = status.Error(codes.Aborted, "bye")

// after ends a stream after some time.
func after(d time.Duration) func(int, *served) error {
	return func(_ int, s *served) error {
		transport.Rest(s.Context(), d)
		return errBye
	}
}

// stay keeps a stream open.
func stay(_ int, s *served) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// The pause before the next stream grows, counted from the start of the last one, until a response is accepted
// (grpc, doc/connection-backoff.md).
func TestPauses(t *testing.T) {
	t.Parallel()
	say := func(texts ...string) func(int, *served) error {
		return func(_ int, s *served) error {
			if err := s.send(texts...); err != nil {
				return err
			}
			return errBye
		}
	}
	for name, test := range map[string]struct {
		serve  func(int, *served) error
		atOnce bool
		want   string
	}{
		"nothing accepted": {say(), false, "0s 1s 3s 7s 15s"},
		"rejected":         {say("rejected"), false, "0s 1s 3s 7s 15s"},
		"accepted":         {say("accepted", "rejected"), false, "0s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 11s 12s 13s 14s 15s"},
		"accepted once": {func(number int, s *served) error {
			if number == 3 {
				return say("accepted")(number, s)
			}
			return errBye
		}, false, "0s 1s 3s 4s 6s 10s"},
		"a long life": {after(6 * time.Second), false, "0s 6s 12s"},
		"at once":     {after(5 * time.Second), true, "0s 5s 10s 15s"},
		"the protocol has changed": {func(number int, s *served) error {
			if number > 3 {
				return stay(number, s)
			}
			return errBye
		}, true, "0s 0s 0s 0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &player{serve: test.serve, atOnce: test.atOnce}
			p.play(t, 15*time.Second+time.Millisecond)
			var got []string
			for _, event := range p.heard {
				if at, ok := strings.CutSuffix(event, " opened"); ok {
					got = append(got, at)
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%s: streams began at %s, want %s", name, got, test.want)
			}
		})
	}
}

// spaces is text that google.golang.org/protobuf varies.
var spaces = regexp.MustCompile("proto:[ \u00a0]")

// The handler learns why a stream ended, after all else that it is told of the stream.
func TestEnds(t *testing.T) {
	t.Parallel()
	bad := []dueRequest{{time.Second, &wire.Request{TypeURL: "T", All: listOf("\xff")}}}
	for name, test := range map[string]struct {
		p    *player
		want []string
	}{
		"without an error":   {&player{serve: func(int, *served) error { return nil }}, []string{"0s opened", "0s ended: the server ended the stream without an error"}},
		"with an error":      {&player{serve: after(0)}, []string{"0s opened", "0s ended: bye"}},
		"while it is to ask": {&player{serve: after(0), slow: time.Second}, []string{"0s opened", "1s ended: bye"}},
		"while it says whether there is a better protocol": {&player{serve: after(0), slowBetter: time.Second}, []string{"0s opened", "1s ended: bye"}},
		"not understood": {&player{serve: func(number int, s *served) error { _ = s.send("broken", "accepted"); return stay(number, s) }},
			[]string{"0s opened", "0s broken", "0s ended: no ADS"}},
		"a request cannot be made": {&player{serve: stay, due: bad},
			[]string{"0s opened", "1s ended: cannot make a request for T: string field contains invalid UTF-8"}},
		"a request cannot be made while a watcher is busy": {&player{serve: func(number int, s *served) error { _ = s.send("never"); return stay(number, s) }, due: bad},
			[]string{"0s opened", "0s never", "1s ended: cannot make a request for T: string field contains invalid UTF-8"}},
		"without credentials": {&player{credentials: "unknown"}, []string{`0s ended: authorities["a"].xds_servers[0].channel_creds`}},
		"unreachable":         {&player{unreachable: true}, []string{`0s ended: connection error: desc = "transport: Error while dialing: unreachable"`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := test.p
			p.play(t, 1900*time.Millisecond)
			p.heard = p.heard[:min(len(p.heard), len(test.want))]
			for i, event := range p.heard {
				event, _, _ = strings.Cut(event, ": expected") // the rest is of the bootstrap
				p.heard[i] = spaces.ReplaceAllString(event, "")
			}
			t.Log(name)
			p.wantHeard(test.want...)
		})
	}
}

// The next response is read when the watchers have the last one, after a rest if it was a lot of work, and those that
// say nothing new at a limited rate.
func TestReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &player{serve: func(_ int, s *served) error {
			if err := s.send(append(append([]string{"new", "work", "new"}, slices.Repeat([]string{"old"}, 200)...), "new")...); err != nil {
				return err
			}
			return stay(0, s)
		}}
		p.play(t, time.Minute)
		p.wantHeard("0s opened", "0s new", "1s delivered", "1s reading", "1s work", "13s delivered", "17s reading",
			"17s new", "18s delivered", "18s reading", "18.4800576s new", "19.4800576s delivered", "19.4800576s reading")
	})
}

// Requests are sent when they are due, or when the stream is notified. The first one of a stream has the node.
func TestSending(t *testing.T) {
	t.Parallel()
	ask := func(at time.Duration, name string) dueRequest {
		return dueRequest{at, &wire.Request{All: listOf(name)}}
	}
	synctest.Test(t, func(t *testing.T) {
		p := &player{
			due: []dueRequest{ask(0, "a"), ask(0, "b"), ask(2*time.Second, "c"), ask(3*time.Second, "d"), ask(5*time.Second, "e"), ask(time.Hour, "f")},
			serve: func(number int, s *served) error {
				if number == 1 {
					_ = after(2500*time.Millisecond)(number, s)
					return s.send("new") // which is worked on until 3.5 s
				}
				return stay(number, s)
			},
		}
		time.AfterFunc(10*time.Second, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.due = []dueRequest{ask(0, "g")}
			p.notify()
		})
		p.play(t, 20*time.Second)
		if diff := gocmp.Diff([]string{"0s [a] me", "0s [b]", "2s [c]", "3.5s [d] me", "5s [e]", "10s [g]"}, p.requests); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// A better protocol is tried beside the stream, which ends when the server implements it.
func TestBetterProtocol(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		better []time.Duration
		serve  func(int, *served) error
		want   []string
	}{
		"implemented": {[]time.Duration{2 * time.Second}, stay, []string{"0s opened", "7s tried true", "7s ended: the server implements a better protocol", "7s opened"}},
		"implemented by one that sends": {[]time.Duration{2 * time.Second}, func(number int, s *served) error {
			if number == 0 {
				_ = s.send("hello")
			}
			return stay(number, s)
		}, []string{"0s opened", "2s tried true", "2s ended: the server implements a better protocol", "2s opened"}},
		"not implemented": {[]time.Duration{2 * time.Second, 5 * time.Second}, func(number int, s *served) error {
			if number == 0 {
				return status.Error(codes.Unimplemented, "")
			}
			return stay(number, s)
		}, []string{"0s opened", "2s tried false", "5s tried false"}},
		"the stream ends before": {[]time.Duration{9 * time.Second}, func(number int, s *served) error {
			if number == 1 {
				return after(8*time.Second)(number, s)
			}
			return stay(number, s)
		}, []string{"0s opened", "8s ended: bye", "8s opened"}},
		"the stream ends meanwhile": {[]time.Duration{2 * time.Second}, func(number int, s *served) error {
			if number == 1 {
				return after(4*time.Second)(number, s)
			}
			return stay(number, s)
		}, []string{"0s opened", "4s ended: bye", "4s opened"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &player{better: test.better, serve: test.serve}
			p.play(t, 8500*time.Millisecond)
			t.Log(name)
			p.wantHeard(test.want...)
		})
	}
}
