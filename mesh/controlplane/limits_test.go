package controlplane_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// from returns a server that is reached from another address, which is another peer. Streams of the two have the same
// server.
func (s *testServer) from(t testing.TB, address string) *testServer {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := grpc.NewClient(s.conn.Target(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", strings.TrimPrefix(to, "dns:///"))
		}))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	other := *s
	other.conn = conn
	return &other
}

func many(n int, prefix string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// awaitNoClients waits until no stream is left, and none holds anything of the limits.
func (s *testServer) awaitNoClients(t *testing.T) {
	t.Helper()
	for ctx := testContext(t); len(s.control.Clients()) > 0 || s.control.Held() > 0; {
		if ctx.Err() != nil {
			t.Fatalf("%d streams are left, and hold %d", len(s.control.Clients()), s.control.Held())
		}
		runtime.Gosched()
	}
}

// A peer that takes as much as it gets of anything ends with RESOURCE_EXHAUSTED and the reason, and leaves room for
// others; when it has left, there is room again.
func TestLimits(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) *client) {
		for name, test := range map[string]struct {
			limit   int64
			refused string
			// greedy takes more than half of the limit with several streams.
			greedy func(t *testing.T, i int, c *client)
			// modest takes less than half.
			modest    func(c *client)
			onlyDelta bool
		}{
			"streams": {
				limit: 6, refused: "streams",
				greedy: func(*testing.T, int, *client) {}, modest: func(*client) {},
			},
			"subscriptions": {
				limit: 100, refused: "subscriptions",
				greedy: func(_ *testing.T, _ int, c *client) { c.subscribe(eds, many(20, "shared")...) },
				modest: func(c *client) { c.subscribe(eds, many(20, "shared")...) },
			},
			"names": {
				limit: 100, refused: "names",
				greedy: func(_ *testing.T, i int, c *client) { c.subscribe(eds, many(20, fmt.Sprint("greedy", i, "-"))...) },
				modest: func(c *client) { c.subscribe(eds, many(20, "modest")...) },
			},
			"long names": {
				limit: 100, refused: "names",
				greedy: func(_ *testing.T, i int, c *client) { c.subscribe(eds, fmt.Sprint(i, strings.Repeat("x", 20*256))) },
				modest: func(c *client) { c.subscribe(eds, strings.Repeat("y", 20*256)) },
			},
			"nodes": {
				limit: 10_000, refused: "node_bytes",
				greedy: func(_ *testing.T, _ int, c *client) { c.identify(strings.Repeat("n", 2_000), eds) },
				modest: func(c *client) { c.identify(strings.Repeat("m", 2_000), eds) },
			},
			"versions": {
				limit: 100, refused: "versions", onlyDelta: true,
				greedy: func(_ *testing.T, i int, c *client) {
					// The wildcard is not answered, so that the claims wait.
					c.resume(cds, versions(20, fmt.Sprint("greedy", i, "-")), "*")
				},
				modest: func(c *client) { c.resume(cds, versions(20, "modest"), "*") },
			},
		} {
			if test.onlyDelta && protocol != controlplane.ProtocolDelta {
				continue
			}
			xdstest.Parallel(t, name, func(t *testing.T) {
				var refused sync.Map
				var s *testServer
				opts := controlplane.Options{OnRefused: func(limit string) { refused.Store(limit, s.store.Version()) }}
				if test.onlyDelta {
					front := controlplane.NewStore()
					front.OnDemand(cds, func(_, _ []*controlplane.Demand) {})
					opts.StoreFor = func(context.Context, *corepb.Node) (*controlplane.Store, error) { return front, nil }
				}
				s = startServer(t, opts)
				s.control.SetLimit(test.refused, test.limit)
				attacker := s.from(t, "127.0.0.2")
				takeAll := func() (held []*client, err error) {
					for i := range 10 {
						c := open(attacker)
						test.greedy(t, i, c)
						if test.onlyDelta {
							c.subscribe(custom, "fence") // after which the claims are kept
						}
						if err = c.answered(custom); err != nil {
							return held, err
						}
						held = append(held, c)
					}
					return held, nil
				}
				s.update(t, func(tx *controlplane.Tx) { tx.SetNamed("there", nil, wrapperspb.String("there")) })
				for range 3 { // what it held before is free again
					held, err := takeAll()
					if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "too many") || len(held) < 2 {
						t.Fatalf("after %d streams: %v, want RESOURCE_EXHAUSTED", len(held), err)
					}
					if _, ok := refused.LoadAndDelete(test.refused); !ok {
						t.Errorf("refused is not %q", test.refused)
					}
					other := open(s)
					test.modest(other)
					if err := other.answered(custom); err != nil {
						t.Fatalf("another peer is refused: %v", err)
					}
					other.cancel()
					for _, c := range held {
						c.cancel()
					}
					s.awaitNoClients(t)
				}
			})
		}
	})
}

// answered subscribes to what there is, and waits for it or the end of the stream.
func (c *client) answered(typeURL string) error {
	_ = c.send(request{typeURL: typeURL, names: []string{"there"}}) // the end of the stream has the reason
	for {
		if r, err := c.receive(); err != nil || r.typeURL == typeURL {
			return err
		}
	}
}

func versions(n int, prefix string) map[string]string {
	has := make(map[string]string, n)
	for _, name := range many(n, prefix) {
		has[name] = "1"
	}
	return has
}

// A request beyond the limits of its stream is refused before it is decoded.
func TestLimits_OfARequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request request
		refused string
	}{
		"versions":     {request{typeURL: cds, has: versions(11, "v")}, "allows 10 per stream"},
		"names":        {request{typeURL: cds, names: many(11, "n")}, "allows 10 per stream"},
		"unsubscribed": {request{typeURL: cds, unsubscribe: many(11, "n")}, "allows 10 per stream"},
		"a node":       {request{typeURL: cds, node: nodeOf(strings.Repeat("x", 600<<10))}, "shorten its metadata"},
		"no list":      {request{typeURL: eds, names: many(9, "n"), unsubscribe: many(9, "m"), has: versions(9, "v")}, ""},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			s := startServer(t, controlplane.Options{MaxSubscriptions: 10})
			c := s.openDelta(t)
			c.request(test.request)
			if test.refused == "" {
				c.next()
			} else if err := c.end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("got %v, want %q", err, test.refused)
			}
			s.openDelta(t).fence()
		})
	}
}

// Clients that read nothing hold responses up to their share. Others get theirs, and those of a client that reads are
// not counted any more.
func TestLimits_Replies(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t, controlplane.Options{})
		s.control.SetLimit("reply_bytes", 64<<10)
		s.update(t, func(tx *controlplane.Tx) {
			tx.SetNamed("big", nil, wrapperspb.String(strings.Repeat("x", 32<<10)))
			tx.SetNamed("there", nil, wrapperspb.String("there"))
		})
		attacker := s.from(t, "127.0.0.2")
		for range 8 {
			open(attacker).subscribe(custom, "big")
		}
		c := open(s)
		for range 20 { // is more than the limit, all in all
			c.subscribe(custom, "big")
			c.ack(c.next(), "big")
			c.drop(custom, nil, "big")
		}
	})
}

// A client with more names than are sent at a time gets all of them, each once, and the errors for those that do
// not exist.
func TestManyNamesAreSentInPieces(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) *client) {
		for _, typeURL := range []string{eds, cds} {
			s := startServer(t, controlplane.Options{NotFoundErrors: true})
			controlplane.SetPace(s.store, 10)
			s.update(t, func(tx *controlplane.Tx) {
				for _, name := range many(35, "c") {
					if typeURL == cds {
						tx.Set(cluster(name))
					} else {
						tx.Set(assignment(name))
					}
				}
			})
			c := open(s)
			c.subscribe(typeURL, append(many(35, "c"), many(25, "missing")...)...)
			got := map[string]int{}
			for len(got) < 60 {
				for _, content := range c.next().content {
					got[strings.TrimLeft(strings.TrimSuffix(content, ": NotFound"), "-!")]++
				}
			}
			for name, n := range got {
				if complete := protocol == controlplane.ProtocolSotW && typeURL == cds; n > 1 && !(complete && strings.HasPrefix(name, "c")) {
					t.Errorf("%s: %s was sent %d times", typeURL, name, n)
				}
			}
			c.fence()
		}
	})
}
