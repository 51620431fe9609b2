package ads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// TestStreams follows testdata/streams.txt: a stream, its Handler, and a server. Each line says what one of them does, and what
// the handler and the server are told follows.
//
//	stream 2: new, wait 1s, end   what the server does on its second stream; "others" on those without a line. It sends
//	                              messages, which say how Receive takes them, and ends with an error; "eof" without; "stay"
//	                              keeps the stream open
//	due 2s a                      a request for a is due then; \xff cannot be written
//	notify 2s a                   the client is notified then that one is due
//	slow 1s                       how long the handler takes to say what is due
//	at once                       the next stream is opened without a pause
//	credentials x, unreachable    the server cannot be reached
//	play 15s                      for how long
func TestStreams(t *testing.T) {
	const file = "testdata/streams.txt"
	cases := strings.Split(golden.Read(t, file), "\n== ")
	t.Cleanup(func() { golden.Check(t, file, strings.Join(cases, "\n== ")) }) // after the cases
	for i := range cases[1:] {
		title, _, _ := strings.Cut(cases[i+1], "\n")
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cases[i+1] = playCase(t, cases[i+1]) })
		})
	}
}

// playCase plays a case, and returns it with what is told.
func playCase(t *testing.T, text string) string {
	p := &player{acts: make(map[string][]string)}
	lines := strings.Split(text, "\n")
	for i, line := range lines[1:] {
		verb, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(rest)
		switch verb {
		case "stream":
			which, acts, _ := strings.Cut(rest, ": ")
			p.acts[which] = strings.Split(acts, ", ")
		case "due":
			name, err := strconv.Unquote(`"` + words[1] + `"`)
			xdstest.NoError(t, err)
			p.due = append(p.due, dueRequest{duration(t, words[0]), &wire.Request{TypeURL: "T", All: wire.Targets{Names: []string{name}}}})
		case "notify":
			time.AfterFunc(duration(t, words[0]), func() { p.change(words[1]) })
		case "slow":
			p.slow = duration(t, rest)
		case "at":
			p.atOnce = true
		case "credentials":
			p.credentials = rest
		case "unreachable":
			p.unreachable = true
		case "play":
			p.play(t, duration(t, rest))
			after := slices.DeleteFunc(slices.Clone(lines[i+2:]), func(line string) bool { return strings.HasPrefix(line, "  ") })
			return strings.Join(slices.Concat(lines[:i+2], p.told(), after), "\n")
		}
	}
	t.Fatal("the case has no line play")
	return ""
}

func duration(t *testing.T, text string) time.Duration {
	d, err := time.ParseDuration(text)
	xdstest.NoError(t, err)
	return d
}

// player is a Handler that does what a case says, and a server that does so.
type player struct {
	t     *testing.T
	began time.Time
	// acts are what the server does with the stream of a number, from 1.
	acts map[string][]string

	// There may be credentials of another type than "insecure". An unreachable server takes no connection.
	credentials string
	unreachable bool
	// due are the requests, each to be sent at its time; slow is how long NextRequest takes.
	due    []dueRequest
	slow   time.Duration
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

// serve has the server do what it does with a stream.
func (p *player) serve(name string, s grpc.ServerStream) error {
	acts := p.acts[name]
	if acts == nil {
		acts = p.acts["others"]
	}
	for _, act := range acts {
		verb, rest, _ := strings.Cut(act, " ")
		switch verb {
		case "wait":
			transport.Rest(s.Context(), duration(p.t, rest))
		case "end":
			return status.Error(codes.Aborted, "bye")
		case "eof":
			return nil
		case "stay":
			<-s.Context().Done()
			return s.Context().Err()
		default:
			times := 1
			if rest != "" {
				times, _ = strconv.Atoi(strings.TrimPrefix(rest, "x"))
			}
			for range times {
				if err := s.SendMsg([]byte(verb)); err != nil {
					return err
				}
			}
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
	conn := transport.NewConn(authority.Servers[0], steady, []grpc.DialOption{grpc.WithContextDialer(dial)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := NewStream(ctx, p, Config{Node: &corev3.Node{Id: "me"}, Backoff: steady, Work: new(transport.Work)})
	ended := make(chan struct{})
	conn.Use()
	go func() {
		defer close(ended)
		stream.Run(conn)
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
	return p.serve(strconv.Itoa(number), s)
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
func (p *player) Receive(message []byte) (accepted bool, done <-chan struct{}, err error) {
	text := string(message)
	if text != "old" {
		p.note(&p.heard, text)
	}
	delivered := make(chan struct{})
	switch text {
	case "old":
		return true, nil, nil
	case "broken":
		return false, nil, errReceive
	case "never":
		return true, delivered, nil
	case "rejected":
		close(delivered)
		return false, delivered, nil
	case "accepted":
		close(delivered)
		return true, delivered, nil
	case "work":
		time.Sleep(11 * time.Second)
	}
	time.AfterFunc(time.Second, func() { close(delivered) })
	return true, delivered, nil
}

func (p *player) Delivered() { p.note(&p.heard, "delivered") }

func (p *player) Reading() { p.note(&p.heard, "reading") }

func (p *player) Ended(err error) bool {
	if s, ok := status.FromError(err); ok {
		err = errors.New(s.Message())
	}
	p.note(&p.heard, fmt.Sprint("ended: ", err))
	return p.atOnce
}

// spaces is text that google.golang.org/protobuf varies.
var spaces = regexp.MustCompile("proto:[ \u00a0]")

// told returns what the handler, and the server, were told.
func (p *player) told() (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, event := range p.heard {
		event, _, _ = strings.Cut(event, ": expected") // the rest is of the bootstrap
		lines = append(lines, "  "+spaces.ReplaceAllString(event, ""))
	}
	for _, event := range p.requests {
		lines = append(lines, "  server: "+event)
	}
	return lines
}

// change has a request be due, and notifies the stream.
func (p *player) change(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = []dueRequest{{0, &wire.Request{All: wire.Targets{Names: []string{name}}}}}
	p.notify()
}
