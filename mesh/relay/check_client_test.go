package relay_test

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// client is a client of the relay that does what the specifications say, with at most one stream.
type client struct {
	// wants says that it subscribes to the name.
	wants bool
	// heard is what it was told last. resource is what it has of the resource, or nothingHeard, and version that of it.
	heard, resource content
	version         string
	// down is the stream, and stop ends it. nonce is that of the last response, and accepted its version.
	down            *link
	stop            context.CancelFunc
	nonce, accepted string

	// lists counts the changes of the subscription on the stream, and read those of which the relay has taken note.
	// requests are under way to the relay, and stamps has read for each response that is under way, when it was sent.
	lists, read int
	requests    []sentRequest
	stamps      []int
	// at is the place in trial.had of what was heard last, and answered says that the stream has answered the subscription.
	at       int
	answered bool
	// fresh says that nothing was heard of the subscription yet: that a response omits the resource is then no sign that
	// it is absent.
	fresh bool
}

// sentRequest is a request with the nonce that it has, and lists when it was sent.
type sentRequest struct {
	lists int
	nonce string
}

// holds reports whether the client has a resource that is not in error.
func (c *client) holds() bool { return c.resource != nothingHeard && c.heard == c.resource }

func (c *client) streaming() bool { return c.down.isOpen() }

// stamp stamps the new responses of the relay.
func (c *client) stamp() {
	if c.down == nil {
		return
	}
	for len(c.stamps) < c.down.down.pending() {
		c.stamps = append(c.stamps, c.read)
	}
}

// connect opens a stream, and subscribes as before.
func (x *trial) connect() {
	x.Tell("the client connects")
	x.input(atRelay, "connect")
	x.input(atClient, "connect")
	method := "StreamAggregatedResources"
	if x.way.deltaDown {
		method = "DeltaAggregatedResources"
	}
	ctx, stop := context.WithCancel(x.ctx)
	x.client.stop = stop
	x.down = x.front.open(ctx, adsMethods+method)
	x.nonce, x.lists, x.read, x.requests, x.stamps, x.answered = "", 0, 0, nil, nil, false
	if x.wants {
		x.fresh = x.fresh || x.resource == nothingHeard
		x.ask(true, true, nil)
	}
	x.wait()
}

// disconnect ends the stream.
func (x *trial) disconnect() {
	x.Tell("the client loses the relay")
	x.input(atRelay, "disconnect")
	x.input(atClient, "disconnect")
	x.client.stop()
	x.wait()
}

// subscribe and unsubscribe change what the client wants.
func (x *trial) subscribe(wants bool) {
	x.Tell("the client %s", map[bool]string{true: "subscribes", false: "unsubscribes"}[wants])
	x.input(atClient, "wants %v", wants)
	if x.wants = wants; x.way.deltaDown {
		x.heard, x.resource = nothingHeard, nothingHeard
	}
	x.answered, x.fresh = false, true
	switch {
	case x.streaming():
		x.ask(x.lists == 0, true, nil)
	case wants:
		x.connect()
	}
	x.wait()
}

// ask sends a request: the first of the stream, one that changes the subscription, an ACK.
func (x *trial) ask(first, change bool, ack *discoverypb.DeltaDiscoveryResponse) {
	if change {
		x.lists++
		x.at = x.known
	}
	var n *corepb.Node
	if first {
		n = node("a")
		n.UserAgentName = "dynxds"
	}
	var m proto.Message
	if x.way.deltaDown {
		r := &discoverypb.DeltaDiscoveryRequest{Node: n, TypeUrl: clusterType}
		if ack != nil {
			r.ResponseNonce = ack.GetNonce()
		}
		switch {
		case change && x.wants:
			r.ResourceNamesSubscribe = []string{"c"}
			if first && x.holds() {
				r.InitialResourceVersions = map[string]string{"c": x.version}
			}
		case change:
			r.ResourceNamesUnsubscribe = []string{"c"}
		}
		m = r
	} else {
		r := &discoverypb.DiscoveryRequest{Node: n, TypeUrl: clusterType, ResponseNonce: x.nonce}
		if x.nonce != "" || x.holds() {
			r.VersionInfo = x.accepted
		}
		if x.wants {
			r.ResourceNames = []string{"c"}
		}
		m = r
	}
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	x.requests = append(x.requests, sentRequest{x.lists, x.nonce})
	x.down.up.send(mem.BufferSlice{mem.SliceBuffer(data)})
}

// askRelay has the relay read a request of the client.
func (x *trial) askRelay() {
	last := ""
	if !x.way.deltaDown {
		last = x.lastSent()
	}
	data := x.down.up.deliver()
	x.Tell("client to relay: %v", requestOf(x.way.deltaDown, data))
	x.input(atRelay, "client %q", data)
	r := x.requests[0]
	x.requests = x.requests[1:]
	if x.way.deltaDown || r.nonce == last { // SotW: requests with an older nonce are ignored
		x.read = r.lists
	}
	x.wait()
}

// lastSent is the nonce of the last response that the relay has sent.
func (x *trial) lastSent() string {
	lane := &x.down.down
	lane.mu.Lock()
	defer lane.mu.Unlock()
	if n := len(lane.sent); n > 0 {
		return responseOf(false, lane.sent[n-1]).GetNonce()
	}
	return x.nonce
}

// tellClient has the client read a response, and acknowledge it.
func (x *trial) tellClient() {
	data := x.down.down.take()
	r := responseOf(x.way.deltaDown, data)
	x.Tell("relay to client: %v", r)
	x.input(atClient, "%q", data)
	current := x.stamps[0] == x.lists
	x.stamps = x.stamps[1:]
	x.nonce, x.accepted = r.GetNonce(), r.GetSystemVersionInfo()
	x.take(contentOf(x.way.deltaDown, r), r, current)
	x.ask(false, false, r)
	x.wait()
}

// take notes what a response says. Over SotW that is so too while the client does not subscribe: the relay may never
// read that.
func (x *trial) take(c content, r *discoverypb.DeltaDiscoveryResponse, current bool) {
	omits := omits(x.way.deltaDown, r)
	switch {
	case c == nothingHeard, !x.wants && x.way.deltaDown, x.wants && x.fresh && omits:
		return
	case !x.wants && omits:
		x.heard, x.resource = nothingHeard, nothingHeard
		return
	}
	x.believe(c, current && x.wants)
	x.heard = c
	switch c {
	case versionX, versionY:
		x.resource, x.version = c, r.GetResources()[0].GetVersion()
	case absent:
		x.resource = nothingHeard
	}
}

// believe checks that the server had what the client is told: since it had what the client was told before, unless the
// relay sent that before it read the last change of the subscription.
func (x *trial) believe(c content, current bool) {
	from := 0
	if current {
		from, x.fresh = x.at, false
	}
	if i := slices.Index(x.had[from:], c); i >= 0 {
		if current {
			x.at, x.answered = from+i, true
		}
		return
	}
	if x.way.plain && c == denied && slices.Contains(x.had, denied) { // the server did not say that the error has ended
		return
	}
	if patience := x.silent || x.way.plain && x.used.lost > 0; patience && !x.answered && (c == absent || c == unavailable) {
		return
	}
	x.Fail("the client is told %v, and the server had only %v since then", c, x.had[from:])
}

// contentOf is what a response says of the name.
func contentOf(delta bool, r *discoverypb.DeltaDiscoveryResponse) content {
	switch errs := r.GetResourceErrors(); {
	case len(errs) > 0 && codes.Code(errs[0].GetErrorDetail().GetCode()) == codes.NotFound:
		return absent
	case len(errs) > 0 && codes.Code(errs[0].GetErrorDetail().GetCode()) == codes.PermissionDenied:
		return denied
	case len(errs) > 0:
		return unavailable
	case len(r.GetResources()) > 0:
		var c clusterpb.Cluster
		decode(r.GetResources()[0].GetResource().GetValue(), &c)
		if c.GetEdsClusterConfig().GetServiceName() == versionX.String() {
			return versionX
		}
		return versionY
	case len(r.GetRemovedResources()) > 0, !delta: // a SotW response is the full state
		return absent
	default:
		return nothingHeard
	}
}

// omits reports whether a response says by silence only that the resource is absent.
func omits(delta bool, r *discoverypb.DeltaDiscoveryResponse) bool {
	return !delta && len(r.GetResourceErrors())+len(r.GetResources()) == 0
}

// requestOf decodes a request of either protocol.
func requestOf(delta bool, data []byte) proto.Message {
	var m proto.Message = new(discoverypb.DiscoveryRequest)
	if delta {
		m = new(discoverypb.DeltaDiscoveryRequest)
	}
	decode(data, m)
	return m
}
