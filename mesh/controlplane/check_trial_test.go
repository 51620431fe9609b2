package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/explore"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// trial is one path: a store and a stream without goroutines, a client, and what is under way between them.
type trial struct {
	way   *checkWay
	store *Store
	// st is the stream if streaming is set.
	st        testStream
	streaming bool
	opts      Options
	node      int
	world     [maxCheckItems]checkContent
	// latest has what each resource was when it was there last.
	latest [maxCheckItems]checkContent
	// live are the demands that the source knows.
	live []*checkDemand
	// kept is checked with a removal delay.
	kept checkKept
	// subscribed are the subscriptions that the server has read, as bits, and lastNonce is the nonce of the server's last response.
	subscribed uint
	lastNonce  string
	client     checkClient
	up         []*checkRequest
	down       []*checkResponse
	// wanted are the subscriptions of the client as bits; dirty says that it has a request to send.
	wanted uint
	dirty  bool
	used   checkScope
	explore.Tale
}

// checkDemand is a demand, and whether the source has answered it.
type checkDemand struct {
	*Demand
	answered bool
}

// checkRequest is a request on its way.
type checkRequest struct {
	sotw  *discoverypb.DiscoveryRequest
	delta *discoverypb.DeltaDiscoveryRequest
	// subs are what it lists or subscribes to, and leaves what it unsubscribes from, as bits.
	subs, leaves uint
	text         string
}

func newTrial(way *checkWay) *trial {
	x := &trial{way: way, store: NewStore()}
	x.opts = Options{MaxResponseSize: 1 << 20, WrapResources: true, NotFoundErrors: way.reports, BindLocators: way.implicit && way.locators}
	x.opts.NodeConstraints = func(*corepb.Node) dynparam.ByType {
		if !way.implicit {
			return dynparam.ByType{}
		}
		return way.nodes[x.node]
	}
	if way.keeps {
		x.opts.RemovalDelay = time.Hour
	}
	if way.denied != "" {
		x.opts.Authorize = func(_ context.Context, _ *corepb.Node, _, name string) error {
			if name == way.denied {
				return status.Error(codes.PermissionDenied, "denied")
			}
			return nil
		}
	}
	if way.explains {
		x.opts.Absence = func(_, name string, _ func(string) bool) string { return "no " + name }
	}
	x.opts.OnNACK = func(Rejection) { x.client.rejections++ }
	// Sources are notified by an event.
	x.store.notifying = true
	if way.source {
		x.store.OnDemand("", x.demanded)
	}
	for i, it := range way.things {
		if !it.glob {
			x.put(i, checkX)
		}
	}
	for _, c := range way.scope.start {
		x.change(verbSubscribe, int(c-'0'))
	}
	if x.wanted != 0 {
		x.open(false)
		x.talk()
		x.used = checkScope{}
	}
	return x
}

// open begins a stream. The client has forgotten all that it had, or not.
func (x *trial) open(forgotten bool) {
	x.Tell("a stream begins%s", map[bool]string{true: ", the client has nothing"}[forgotten])
	x.streaming, x.dirty, x.subscribed, x.lastNonce = true, true, 0, ""
	x.kept = checkKept{}
	protocol := ProtocolSotW
	if x.way.delta {
		protocol = ProtocolDelta
	}
	x.st = openTestStream(context.Background(), 1, protocol, x.store, &x.opts, newTestUsage())
	x.client.begin(x, forgotten)
}

// breakOff loses the stream, and what is under way.
func (x *trial) breakOff() {
	x.release()
	x.up, x.down, x.streaming = nil, nil, false
}

// release ends the stream at the server, where nothing may be left of it.
func (x *trial) release() {
	x.st.end().release(x.st.stream)
	for _, t := range x.store.tables {
		if len(t.index.subs.of) > 0 || !x.way.source && len(t.asks.m) > 0 {
			x.Fail("subscriptions are left when the stream has ended")
		}
	}
}

// End implements explore.Trial.
func (x *trial) End() {
	if x.st.stream != nil {
		x.st.dropRetention()
	}
}

// read has the server read a request. It ignores a SotW request that answers an older response than its last one.
func (x *trial) read() {
	r := x.up[0]
	x.up = x.up[1:]
	x.Tell("the server reads: %s", r.text)
	var err error
	if x.way.delta {
		if r.delta.ErrorDetail != nil {
			x.client.nacked++
		}
		x.subscribed = x.subscribed&^r.leaves | r.subs
		x.kept.subscribe(x, r.leaves|r.subs)
		err = x.st.delta.handleRequest(r.delta)
	} else {
		if nonce := r.sotw.ResponseNonce; nonce == "" || x.lastNonce == "" || nonce == x.lastNonce {
			if r.sotw.ErrorDetail != nil {
				x.client.nacked++
			}
			x.kept.subscribe(x, x.subscribed^r.subs)
			x.subscribed = r.subs
		}
		err = x.st.sotw.handleRequest(r.sotw)
	}
	if err != nil {
		x.Fail("the stream ends: %v", err)
	}
}

// push has the server send what is due.
func (x *trial) push() {
	select {
	case <-x.st.wake:
	default:
	}
	var responses []*checkResponse
	err := x.st.push(func(r *discoverypb.DeltaDiscoveryResponse) error {
		responses = append(responses, x.readResponse(r))
		return nil
	})
	if err != nil {
		x.Fail("the stream ends: %v", err)
	}
	for _, r := range responses {
		x.Tell("the server sends: %s", r.text)
		x.lastNonce = r.nonce
		x.judge(r)
		if x.way.keeps {
			x.kept.judge(x, r)
		}
	}
	x.down = append(x.down, responses...)
}

// endDelay lets the removal delay pass.
func (x *trial) endDelay() {
	x.kept.endDelay()
	for i := range x.st.retention.queue {
		x.st.retention.queue[i].due = time.Time{}
	}
	x.st.endRetention()
}

// move changes the constraints of the client's node.
func (x *trial) move() {
	x.node = 1 - x.node
	x.Tell("the node has the constraints %s", [...]string{"env=prod", "env=test"}[x.node])
	x.kept = checkKept{}
	if !x.streaming {
		return
	}
	if _, greeted := x.st.greeting(); greeted {
		x.st.constrain()
	}
	if x.st.failed() != nil {
		x.Tell("the stream ends")
		x.breakOff()
		if x.way.delta {
			x.client.members = [maxCheckSubs][maxCheckItems]checkValue{} // the server would not know which variants it claims
		}
	}
}

// isPending reports whether the source is to be told of demands.
func (x *trial) isPending() bool { return x.way.source && len(x.store.sources[""].pending) > 0 }

// notify tells the source of demands.
func (x *trial) notify() {
	x.store.notifySources()
	x.store.notifying = true
}

// demanded is the source.
func (x *trial) demanded(begun, ended []*Demand) {
	slices.SortFunc(begun, func(a, b *Demand) int { return strings.Compare(a.Name+a.Constraints.Key(), b.Name+b.Constraints.Key()) })
	for _, d := range begun {
		x.Tell("the source is asked for %s", d.Name)
		x.live = append(x.live, &checkDemand{Demand: d})
	}
	for _, d := range ended {
		x.live = slices.DeleteFunc(x.live, func(l *checkDemand) bool { return l.Demand == d })
	}
}

// answer has the source answer a demand.
func (x *trial) answer(i int) {
	d := x.live[i]
	d.answered = true
	x.Tell("the source answers for %s", d.Name)
	x.update(func(tx *Tx) { x.say(tx, d.Demand) })
}

// say is what the source says of a demand.
func (x *trial) say(tx *Tx, d *Demand) {
	if !d.Collection() {
		v := x.choice(d.Name, d.Constraints)
		switch {
		case v.content() == checkError:
			tx.AnswerError(d, x.way.failure(v.item()))
		case v.isThere():
			it := &x.way.things[v.item()]
			r, err := newResource(it.name, it.parameters.Map(), x.way.resource(v.item(), v.content()))
			if err != nil {
				x.Fail("%v", err)
			}
			tx.Answer(d, r)
		default:
			tx.Answer(d, nil)
		}
		return
	}
	failed := -1
	for i := range x.way.things {
		switch it := &x.way.things[i]; {
		case d.Name == wildcardName && strings.Contains(it.text, "/"), !strings.HasPrefix(it.name, strings.TrimSuffix(d.Name, "*")):
		case !it.glob:
			x.set(tx, i)
		case x.world[i] == checkError:
			failed = i
		}
	}
	if failed >= 0 {
		tx.AnswerError(d, x.way.failure(failed))
		return
	}
	tx.Answer(d, nil)
}

func (way *checkWay) resource(item int, c checkContent) *anypb.Any {
	return &anypb.Any{TypeUrl: way.typeURL, Value: []byte(way.text(item, c))}
}

func (way *checkWay) failure(item int) *status.Status {
	return status.New(codes.Internal, way.text(item, checkError))
}

// talk has all that is due happen, until there is silence. It returns the number of responses that took.
func (x *trial) talk() (responses int) {
	for range 60 {
		switch {
		case x.Fault() != "":
			return responses
		case len(x.up) > 0:
			x.read()
		case len(x.down) > 0:
			x.deliver(answerACK)
			responses++
		case x.dirty:
			x.flush()
		case x.isPending():
			x.notify()
		case slices.ContainsFunc(x.live, func(d *checkDemand) bool { return !d.answered }):
			for i, d := range x.live {
				if !d.answered {
					x.answer(i)
				}
			}
		case len(x.st.wake) > 0:
			x.Tell("push")
			x.push()
		case len(x.st.retention.queue) > 0:
			x.endDelay()
		default:
			return responses
		}
	}
	x.Fail("client and server do not come to an end")
	return responses
}

// Settle implements explore.Trial: it lets all happen that is due, and checks what the client has, and that the
// server keeps nothing that it needs no more.
func (x *trial) Settle() (responses int) {
	if !x.streaming {
		if x.wanted == 0 {
			return 0
		}
		x.open(false)
	}
	responses = x.talk()
	if x.Fault() == "" {
		x.compare()
	}
	if sub := x.st.subs[x.way.typeURL]; x.Fault() == "" && sub != nil {
		x.checkState(sub)
	}
	x.release()
	return responses
}

// checkState checks what is left on the server when all is silent.
func (x *trial) checkState(sub *subscription) {
	d := &sub.delivery
	switch {
	case !sub.items.noneDue() || sub.queued || sub.settling.Load() > 0 || len(x.st.dueSubs) > 0:
		x.Fail("in the end something is due: %+v", sub.items)
	case len(sub.items.kept.m) > 0 || sub.claims != 0:
		x.Fail("in the end something is kept: %d deleted resources, %d claims", len(sub.items.kept.m), sub.claims)
	case len(d.unanswered) > 0 || d.reply == ReplyAwaited:
		x.Fail("in the end %d responses are unanswered, the reply is %v", len(d.unanswered), d.reply)
	case x.client.rejections != x.client.nacked:
		x.Fail("the client rejected %d responses, and %d were reported", x.client.nacked, x.client.rejections)
	}
	// What is sent is bounded by what is subscribed and what there is.
	if n := known(sub); n > len(x.way.subs_)+len(x.way.things) {
		x.Fail("in the end %d topics are kept as sent", n)
	}
}

func (x *trial) bits(list uint) string {
	var texts []string
	for l := range x.way.subs_ {
		if list&(1<<l) != 0 {
			texts = append(texts, x.way.subs_[l].text)
		}
	}
	return fmt.Sprint(texts)
}
