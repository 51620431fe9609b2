package relay_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/explore"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/xdsclient"
)

// content is what the server has of the name, or what a client has heard.
type content int8

const (
	nothingHeard content = iota
	absent
	denied
	versionX
	versionY
	// unavailable is the error of the relay itself.
	unavailable
)

func (c content) String() string {
	return [...]string{"nothing", "absent", "PERMISSION_DENIED", "x", "y", "UNAVAILABLE"}[c]
}

const (
	// shortly is longer than the backoff of the relay, and shorter than all else that it waits for.
	shortly = 50 * time.Millisecond
	// silence is longer than the resource timer and the relay's patience, and shorter than its linger.
	silence = 20 * time.Second
	// longAfter is longer than anything that the relay waits for.
	longAfter = 2 * time.Minute
)

// trial is a client, a relay and a server on one path. Of the streams the trial delivers the messages. It
// implements explore.Trial.
type trial struct {
	way    *checkWay
	relay  *relay.Relay
	server *controlplane.Server
	store  *controlplane.Store
	// front are the services of the relay, and back those of the server.
	front, back services
	stop        context.CancelFunc
	ctx         context.Context

	mu sync.Mutex
	// reachable says that streams upstream can be opened; up is the last.
	reachable bool
	up        *link
	// upStamps has of each message of up that is on its way down how much of had there was when it was sent.
	upStamps []int

	// had is all that the server had, in order, and known the place in it that the relay was told last.
	had   []content
	known int
	client
	used checkScope
	// silent says that all was silent for long.
	silent bool

	// inputs are those of client, relay and server. They decide what these do.
	inputs [3]strings.Builder
	explore.Tale
}

const (
	atClient = iota
	atRelay
	atServer
)

func newTrial(way *checkWay) *trial {
	x := &trial{way: way, reachable: true, store: controlplane.NewStore(), front: services{}, back: services{}, had: []content{absent}}
	x.ctx, x.stop = context.WithCancel(context.Background())
	x.server = controlplane.NewServer(x.store, controlplane.Options{RemovalDelay: -1, NotFoundErrors: !way.plain})
	x.server.Register(x.back)
	var err error
	x.relay, err = relay.New(relay.Options{
		Bootstrap: way.bootstrap,
		Linger:    way.linger,
		Client: xdsclient.Options{
			Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			Dial:    []grpc.DialOption{grpc.WithStreamInterceptor(x.openUpstream)},
		},
	})
	if err != nil {
		panic(err)
	}
	x.relay.Register(x.front)
	if way.scope.answered {
		x.put(versionX)
		x.Do(checkEvent{verb: verbSubscribe})
		x.settle()
		x.used = checkScope{}
	}
	return x
}

// End implements explore.Trial.
func (x *trial) End() {
	x.relay.Close()
	x.server.Close()
	x.stop()
	synctest.Wait()
}

// openUpstream is the interceptor of the relay's streams.
func (x *trial) openUpstream(
	ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.reachable {
		return nil, errLost
	}
	x.up, x.upStamps = x.back.open(ctx, method), nil
	return newClientEnd(x.up, opts), nil
}

// upstream returns the stream between relay and server if there is one.
func (x *trial) upstream() *link {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.up.isOpen() {
		return nil
	}
	return x.up
}

// noncePrefix is what package controlplane draws at random for each stream.
var noncePrefix = regexp.MustCompile(`[0-9a-f]{8}-`)

// input notes what happens to a party.
func (x *trial) input(party int, format string, args ...any) {
	x.inputs[party].WriteString(noncePrefix.ReplaceAllString(fmt.Sprintf(format+"\n", args...), "-"))
}

// wait lets all happen that happens without further events.
func (x *trial) wait() {
	synctest.Wait()
	if up := x.upstream(); up != nil {
		for len(x.upStamps) < up.down.pending() {
			x.upStamps = append(x.upStamps, len(x.had)-1)
		}
	}
	x.client.stamp()
}

// pass lets time pass.
func (x *trial) pass(d time.Duration) {
	x.input(atRelay, "pass %v", d)
	x.input(atServer, "pass %v", d)
	time.Sleep(d)
	x.wait()
}

// put has the server have something.
func (x *trial) put(c content) {
	x.Tell("the server has %v", c)
	x.input(atServer, "put %v", c)
	x.had = append(x.had, c)
	_, err := x.store.Update(func(tx *controlplane.Tx) {
		switch c {
		case absent:
			tx.Delete(clusterType, "c")
		case denied:
			tx.SetError(clusterType, "c", status.New(codes.PermissionDenied, "no"))
		default:
			tx.Set(xdsmsg.EDSCluster("c", c.String()))
		}
	})
	if err != nil {
		panic(err)
	}
	x.wait()
}

// lose ends the stream upstream, and has the server be unreachable; restore ends that.
func (x *trial) lose() {
	x.Tell("the relay loses the server")
	x.input(atRelay, "lose")
	x.input(atServer, "lose")
	x.mu.Lock()
	x.reachable = false
	x.mu.Unlock()
	if up := x.upstream(); up != nil {
		up.finish(errLost)
	}
	x.wait()
}

func (x *trial) restore() {
	x.Tell("the server is reachable again")
	x.input(atRelay, "restore")
	x.mu.Lock()
	x.reachable = true
	x.mu.Unlock()
	x.pass(shortly)
}

// beSilent lets time pass without a message.
func (x *trial) beSilent() {
	x.Tell("silence")
	x.silent = true
	x.pass(silence)
}

// askServer has the server read a request of the relay, and tellRelay has the relay read a response.
func (x *trial) askServer() {
	data := x.upstream().up.deliver()
	x.Tell("relay to server: %v", requestOf(x.way.deltaUp, data))
	x.input(atServer, "%q", data)
	x.wait()
}

func (x *trial) tellRelay() {
	data := x.upstream().down.deliver()
	x.known, x.upStamps = x.upStamps[0], x.upStamps[1:]
	x.Tell("server to relay: %v", responseOf(x.way.deltaUp, data))
	x.input(atRelay, "server %q", data)
	x.wait()
}

// Settle implements explore.Trial: once all is quiet, the client has what the server has, and goes on having it. Each path
// leads on to states in which all is quiet, so that only these are looked at.
func (x *trial) Settle() (messages int) {
	if len(x.deliveries()) > 0 || !x.reachable || !x.streaming() && x.wants {
		return 0
	}
	x.Tell("all is quiet")
	messages = x.settle()
	for i, when := range []string{"once all is quiet", "long after all was quiet"} {
		if now := x.had[len(x.had)-1]; x.wants && !x.agrees(now, i > 0) {
			x.Fail("%s, the server has %v, and the client has heard %v", when, now, x.heard)
		}
		x.pass(longAfter)
		messages += x.settle()
	}
	if s := x.relay.Stats(); !x.wants && (s.Subscriptions != 0 || s.Lingering != 0) {
		x.Fail("long after all was quiet, nobody subscribes, and the relay has %+v", s)
	}
	return messages
}

// agrees reports whether the client has what the server has. A server without errors for absence says it only by what it
// omits: then it takes the relay until its resource timer ends, if it has not had the resource, and an error may stay
// in the place of an absent resource.
func (x *trial) agrees(now content, late bool) bool {
	if x.way.plain && now == absent {
		return !late || x.heard == absent || x.heard == denied
	}
	return x.heard == now
}

// settle delivers all messages until there are none.
func (x *trial) settle() (messages int) {
	for range 100 {
		moved := false
		for _, e := range x.deliveries() {
			if slices.Contains(x.deliveries(), e) { // the one before it may have ended a stream
				x.Do(e)
				messages++
				moved = true
			}
		}
		if moved {
			continue
		}
		if x.pass(shortly); len(x.deliveries()) == 0 {
			return messages
		}
	}
	x.Fail("client, relay and server do not come to an end")
	return messages
}

// Encode implements explore.Trial. What a party does follows from its inputs in their order, so that paths
// that differ only in the order of events at different parties are one state.
func (x *trial) Encode(e *explore.Encoder) {
	for i := range x.inputs {
		e.Text(x.inputs[i].String())
	}
	e.Bool(x.silent)
	e.Number(uint64(x.known))
	e.Number(uint64(x.at))
	e.Bool(x.answered)
	for _, c := range x.had {
		e.Byte(byte(c))
	}
}
