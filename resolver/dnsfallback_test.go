package resolver

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const (
	never       = bootstrap.DNSFallbackNever
	notFound    = bootstrap.DNSFallbackNotFound
	timeout     = bootstrap.DNSFallbackTimeout
	unavailable = bootstrap.DNSFallbackUnavailable
)

// answers are errors in place of a Listener.
var answers = []struct {
	name string
	err  error
	// permitting are the policies that permit DNS.
	permitting []bootstrap.DNSFallback
}{
	{"does not exist", failure(xdsclient.KindDoesNotExist, "answer"), []bootstrap.DNSFallback{notFound, timeout, unavailable}},
	{"NOT_FOUND", &xdsclient.Error{Kind: xdsclient.KindServer, Code: codes.NotFound, Err: errOfNoKind}, []bootstrap.DNSFallback{notFound, timeout, unavailable}},
	{"unreachable", failure(xdsclient.KindUnreachable, "answer"), []bootstrap.DNSFallback{unavailable}},
	{"timeout", failure(xdsclient.KindTimeout, "answer"), []bootstrap.DNSFallback{timeout, unavailable}},
	{"PERMISSION_DENIED", &xdsclient.Error{Kind: xdsclient.KindServer, Code: codes.PermissionDenied, Err: errOfNoKind}, nil},
	{"UNAVAILABLE from the server", &xdsclient.Error{Kind: xdsclient.KindServer, Code: codes.Unavailable, Err: errOfNoKind}, nil},
	{"NACK", failure(xdsclient.KindInvalid, "answer"), nil},
	{"configuration", failure(xdsclient.KindConfiguration, "answer"), nil},
	{"another error", errOfNoKind, nil},
}

func TestPolicyDecidesByTheAnswer(t *testing.T) {
	t.Parallel()
	for _, policy := range []bootstrap.DNSFallback{never, notFound, timeout, unavailable} {
		for _, answer := range answers {
			xdstest.Parallel(t, fmt.Sprintf("%s, %s", policy, answer.name), func(t *testing.T) {
				s := newStandIn(t, policy)
				s.give(s.listener(), nil, answer.err)
				if strings.Contains(fmt.Sprint(answer.permitting), string(policy)) {
					s.expect("after the answer", s.dns, channels.DNS)
					if got := s.status(); !strings.Contains(got.Reason, answer.err.Error()) {
						t.Errorf("reason %q, want the answer", got.Reason)
					}
				} else {
					s.expectError("after the answer", channels.Undecided, answer.err.Error())
				}
				// Whatever it was, the Listener may still arrive.
				s.serve()
				s.expect("when the Listener is there", s.mesh, channels.XDS)
			})
		}
	}
}

func TestOnceAListenerWasAcceptedThereIsNoDNS(t *testing.T) {
	t.Parallel()
	for _, answer := range answers {
		xdstest.Parallel(t, answer.name, func(t *testing.T) {
			s := newStandIn(t, unavailable)
			s.serve()
			s.expect("at first", s.mesh, channels.XDS)
			s.give(s.listener(), nil, answer.err)
			s.expectError("after the answer", channels.XDS, answer.err.Error())
			if n := s.dns.Count(); n > 0 {
				t.Errorf("%d RPCs went by DNS", n)
			}
		})
	}
}

// TestAcceptedListenerWithoutRoutes: with a Listener the target is one of the
// mesh, though it cannot be used.
func TestAcceptedListenerWithoutRoutes(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, unavailable)
	s.giveListener()
	s.give("RouteConfiguration R", nil, failure(xdsclient.KindDoesNotExist, "no routes"))
	s.expectError("without routes", channels.XDS, "no routes")
	s.refuse(xdsclient.KindDoesNotExist)
	s.expectError("without a Listener", channels.XDS, "because the test says so")
}

func TestAmbientErrorIsNoReasonForDNS(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, unavailable)
	s.cc.Connect()
	s.watcher(t, s.listener()).AmbientError(failure(xdsclient.KindUnreachable, "for a moment"), func() {})
	s.settle()
	s.expectMode("before a Listener", channels.Undecided)
	s.serve()
	s.watcher(t, s.listener()).AmbientError(failure(xdsclient.KindDoesNotExist, "kept"), func() {})
	s.settle()
	s.expect("with a Listener", s.mesh, channels.XDS)
}

func TestLaterAnswerPermitsDNS(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, notFound)
	s.refuse(xdsclient.KindUnreachable)
	s.expectError("unreachable", channels.Undecided, "unreachable")
	s.refuse(xdsclient.KindDoesNotExist)
	s.expect("does not exist", s.dns, channels.DNS)
}

// Neither RPCs that wait for ready nor those before the first answer fail.
func TestRPCsThatWaitAreNotFailedByTheMoveToDNS(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, notFound)
	results := make(chan error, 2)
	start := func(opts ...grpc.CallOption) {
		go func() {
			_, err := invoke(testutils.Context(t), s.cc, opts...)
			results <- err
		}()
	}
	start(grpc.WaitForReady(true))
	s.refuse(xdsclient.KindUnreachable)
	s.expectError("unreachable", channels.Undecided, "unreachable")
	s.refuse(xdsclient.KindDoesNotExist)
	start()
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// newOnDNS is a standIn whose channel uses DNS, as there is no Listener.
func newOnDNS(t *testing.T) *standIn {
	t.Helper()
	s := newStandIn(t, notFound)
	s.refuse(xdsclient.KindDoesNotExist)
	s.expect("without a Listener", s.dns, channels.DNS)
	return s
}

func TestMoveToXDSWaitsForAWholeConfiguration(t *testing.T) {
	t.Parallel()
	s := newOnDNS(t)
	s.giveListener()
	s.expect("a Listener", s.dns, channels.DNS)
	s.give("RouteConfiguration R", nil, failure(xdsclient.KindDoesNotExist, "no routes"))
	s.expect("no routes", s.dns, channels.DNS)
	s.giveRoutes()
	s.expect("routes", s.dns, channels.DNS)
	s.giveCluster()
	s.expect("endpoints", s.mesh, channels.XDS)
}

func TestAnswersToAChannelOnDNSChangeNothing(t *testing.T) {
	t.Parallel()
	for _, answer := range answers {
		xdstest.Parallel(t, answer.name, func(t *testing.T) {
			s := newOnDNS(t)
			s.giveListener()
			s.give(s.listener(), nil, answer.err)
			s.expect("after the answer", s.dns, channels.DNS)
		})
	}
}

func TestChannelThatMovedDoesNotReturn(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, unavailable)
	s.refuse(xdsclient.KindUnreachable)
	s.expect("at first", s.dns, channels.DNS)
	s.serve()
	s.expect("with xDS", s.mesh, channels.XDS)
	before := s.dns.Count()
	for _, kind := range []xdsclient.ErrorKind{xdsclient.KindDoesNotExist, xdsclient.KindUnreachable} {
		s.refuse(kind)
		s.expectError("without a Listener", channels.XDS, "because the test says so")
	}
	if n := s.dns.Count() - before; n > 0 {
		t.Errorf("%d RPCs went by DNS", n)
	}
}

// TestRPCsThatWaitForAConnectionMoveToo: nothing listens at the addresses of DNS.
func TestRPCsThatWaitForAConnectionMoveToo(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, notFound)
	s.dns.Stop()
	s.refuse(xdsclient.KindDoesNotExist)
	s.expectError("DNS leads nowhere", channels.DNS, "connection refused")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if got, err := invoke(testutils.Context(t), s.cc, grpc.WaitForReady(true)); err != nil || got != s.mesh.ID() {
			t.Errorf("unary: answered by %q, %v", got, err)
		}
	})
	waiting.Go(func() {
		stream, err := testgrpc.NewTestServiceClient(s.cc).FullDuplexCall(testutils.Context(t), grpc.WaitForReady(true))
		if err == nil {
			err = stream.CloseSend()
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != io.EOF {
			t.Errorf("streaming: %v", err)
		}
	})
	s.serve()
	waiting.Wait()
	s.expectMode("at the end", channels.XDS)
}

func awaitIdle(t *testing.T, cc *grpc.ClientConn) {
	t.Helper()
	ctx := testutils.Context(t)
	for state := cc.GetState(); state != connectivity.Idle; state = cc.GetState() {
		if !cc.WaitForStateChange(ctx, state) {
			t.Fatalf("the channel stays %v", state)
		}
	}
}

func TestModeOutlivesIdlePeriods(t *testing.T) {
	t.Parallel()
	// On a busy machine the channel may be idle at any time, also before it has a configuration.
	idling := grpc.WithIdleTimeout(100 * time.Millisecond)
	onDNS := func(t *testing.T) *standIn {
		s := newStandIn(t, notFound, idling)
		s.keepRefusing(xdsclient.KindDoesNotExist)
		s.expect("without a Listener", s.dns, channels.DNS)
		s.keepAnswering(nil)
		return s
	}
	xdstest.Parallel(t, "DNS", func(t *testing.T) {
		s := onDNS(t)
		since, lines := s.status().Since, logged.Count(s.cc.Target(), "resolved by DNS")
		for range 3 {
			awaitIdle(t, s.cc)
			// The control plane has not answered again.
			s.expect("after an idle period", s.dns, channels.DNS)
		}
		if got := s.status().Since; got != since {
			t.Errorf("in the mode since %v, want %v", got, since)
		}
		xdstest.Equal(t, "how often the fallback was logged again",
			0, logged.Count(s.cc.Target(), "resolved by DNS")-lines)
		s.keepServing()
		for backend := ""; backend != s.mesh.ID(); {
			var err error
			backend, err = invoke(testutils.Context(t), s.cc)
			xdstest.NoError(t, err)
		}
		s.expectMode("with xDS", channels.XDS)
	})
	xdstest.Parallel(t, "xDS", func(t *testing.T) {
		s := newStandIn(t, unavailable, idling)
		s.keepServing()
		s.expect("at first", s.mesh, channels.XDS)
		awaitIdle(t, s.cc)
		s.keepRefusing(xdsclient.KindDoesNotExist)
		s.expectError("after an idle period", channels.XDS, "because the test says so")
	})
	xdstest.Parallel(t, "DNS under another policy", func(t *testing.T) {
		s := onDNS(t)
		awaitIdle(t, s.cc)
		s.channelBuilder.policy = never
		s.keepRefusing(xdsclient.KindDoesNotExist)
		s.expectError("after the policy has changed", channels.Undecided, "because the test says so")
	})
}

func TestFallbackAndReturnAreLoggedOnceWithTheirReason(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, notFound)
	// Ports, and so targets, may be reused.
	fallback := func() int { return logged.Count(s.cc.Target(), "resolved by DNS", "because the test says so") }
	move := func() int { return logged.Count(s.cc.Target(), "configured by xDS, no longer by DNS", "Listener") }
	fallbacks, moves := fallback(), move()
	for range 3 {
		s.refuse(xdsclient.KindDoesNotExist)
	}
	s.expect("without a Listener", s.dns, channels.DNS)
	for range 3 {
		s.serve()
	}
	s.expect("with xDS", s.mesh, channels.XDS)
	xdstest.Equal(t, "how often the fallback was logged", 1, fallback()-fallbacks)
	xdstest.Equal(t, "how often the move was logged", 1, move()-moves)
}

func TestTargetThatDNSCannotResolve(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, notFound)
	s.cc = s.dial("not:a:host")
	s.refuse(xdsclient.KindDoesNotExist)
	s.expectError("without a Listener", channels.Undecided, "because the test says so", "DNS cannot take its place")
	s.serve()
	s.expect("with xDS", s.mesh, channels.XDS)
}

func TestClosingWhileOnDNS(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := newStandIn(t, notFound)
		s.cc.Connect()
		w := s.watcher(t, s.listener())
		var racing sync.WaitGroup
		racing.Go(func() { w.ResourceChanged(nil, failure(xdsclient.KindDoesNotExist, "x"), func() {}) })
		racing.Go(func() { _, _ = invoke(testutils.Context(t), s.cc) })
		racing.Go(func() { s.cc.Close() })
		racing.Wait()
	}
}

// TestMoveUnderLoad: RPCs of both kinds run while the channel moves, beside
// streams that stay open on the connections that DNS gave.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		s := newStandIn(t, notFound)
		s.refuse(xdsclient.KindDoesNotExist)
		ctx := testutils.Context(t)
		long, err := testgrpc.NewTestServiceClient(s.cc).FullDuplexCall(ctx)
		xdstest.NoError(t, err)
		loadCtx, stop := context.WithCancel(ctx)
		var load sync.WaitGroup
		for range 8 {
			load.Go(func() {
				for loadCtx.Err() == nil {
					rpc, cancel := context.WithTimeout(ctx, 10*time.Second)
					if _, err := invoke(rpc, s.cc); err != nil {
						t.Errorf("move %d: %v", i, err)
						stop()
					}
					cancel()
				}
			})
		}
		if err := s.dns.Wait(ctx, 100); err != nil {
			t.Error(err)
		}
		s.serve()
		if err := s.mesh.Wait(ctx, 100); err != nil {
			t.Error(err)
		}
		stop()
		load.Wait()
		if err := long.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := long.Recv(); err != io.EOF {
			t.Errorf("move %d: the stream that was open before ended with %v", i, err)
		}
	}
}

func TestChannelsListsTheOpenOnes(t *testing.T) {
	t.Parallel()
	one, two := newStandIn(t, notFound), newStandIn(t, notFound)
	one.refuse(xdsclient.KindDoesNotExist)
	two.serve()
	find := func(target string) int {
		for i, c := range channels.All() {
			if c.Target == target {
				return i
			}
		}
		return -1
	}
	if i, j := find(one.cc.Target()), find(two.cc.Target()); i < 0 || j < 0 || i > j {
		t.Errorf("the channels are at %d and %d, want both, in the order of use", i, j)
	}
	one.cc.Close()
	if find(one.cc.Target()) >= 0 || find(two.cc.Target()) < 0 {
		t.Error("closing one channel did not remove it, and it alone")
	}
}
