package controlplane

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// checkClient is a client that does what the specifications say.
type checkClient struct {
	// has is what it has for each subscription, and members what of each collection.
	has     [maxCheckSubs]checkValue
	members [maxCheckSubs][maxCheckItems]checkValue
	// refused are the subscriptions of which it has rejected a response, and was sent no other since.
	refused uint
	// wanted are all subscriptions that it ever had, as bits.
	wanted uint
	// begun says that it has sent a request on the stream, and named that it has sent a name.
	begun, named bool
	// nonce and version are of the last response that it read, and accepted.
	nonce, version string
	// rejected is the error for the next request, if it is a NACK.
	rejected bool
	// nacked counts the NACKs that the server has read, and rejections those that it reported.
	nacked, rejections int
}

// checkResponse is a response as a client reads it.
type checkResponse struct {
	nonce, version, text string
	full                 bool
	// resources are values; removed and errors are of subscriptions and of members.
	resources []checkValue
	removed   []checkRemoval
	errors    []checkRemoval
}

// checkRemoval is a removal, or an error, of subscriptions and of items, which are bits.
type checkRemoval struct {
	subs, items uint
	value       checkValue
	text        string
}

// begin is called when a stream begins.
func (c *checkClient) begin(x *trial, forgotten bool) {
	old := *c
	*c = checkClient{nacked: old.nacked, rejections: old.rejections, wanted: old.wanted}
	if forgotten {
		return
	}
	c.version = old.version
	for l := range x.way.subs_ {
		if x.way.delta && x.wanted&(1<<l) == 0 {
			continue
		}
		if c.members[l] = old.members[l]; old.has[l].isThere() {
			c.has[l] = old.has[l]
		}
	}
}

// mayLeave reports whether the client can say that a subscription has ended.
func (x *trial) mayLeave(l int) bool {
	// A SotW client that has named nothing subscribes to everything without names.
	return x.way.delta || !x.way.legacy || x.client.named || x.way.subs_[l].name != wildcardName
}

// change changes what the client subscribes to. A delta client says so at once, a SotW client when it sends its
// next list.
func (x *trial) change(verb checkVerb, l int) {
	bit := uint(1) << l
	if verb == verbLeave {
		x.wanted &^= bit
	} else {
		x.wanted |= bit
		x.client.wanted |= bit
	}
	if !x.way.delta {
		x.dirty = true
		return
	}
	if verb != verbAgain || x.way.scope.breaks == 0 {
		// Over delta a client drops the resources of a subscription that it ends, and may drop those of one that it begins again.
		// When a stream begins, a client claims resources by name, so that it needs them for all subscriptions to the name.
		x.client.has[l], x.client.members[l] = checkUnsaid, [maxCheckItems]checkValue{}
		x.client.refused &^= bit
	}
	if !x.streaming {
		return
	}
	if !x.client.begun {
		x.dirty = x.wanted != 0
		return
	}
	if verb == verbLeave {
		x.send(0, bit)
	} else {
		x.send(bit, 0)
	}
}

// flush sends the request that is due: the first one of a stream or, over SotW, the list.
func (x *trial) flush() {
	x.dirty = false
	if x.way.delta {
		if !x.client.begun && x.wanted != 0 {
			x.send(x.wanted, 0)
		}
		return
	}
	if x.wanted != 0 || x.client.begun {
		x.send(x.wanted, 0)
	}
}

// send sends a request.
func (x *trial) send(subs, leaves uint) {
	c := &x.client
	names := x.names(subs)
	if x.way.legacy && !c.begun && len(names) == 1 && names[0] == wildcardName {
		names = nil
	}
	c.named = c.named || len(names) > 0
	r := &checkRequest{subs: subs, leaves: leaves}
	r.text = fmt.Sprintf("%s -%s", x.bits(subs), x.bits(leaves))
	if !x.way.delta {
		r.text = fmt.Sprintf("%s after %q", x.bits(subs), c.nonce)
		r.sotw = &discoverypb.DiscoveryRequest{TypeUrl: x.way.typeURL, ResponseNonce: c.nonce, VersionInfo: c.version}
		if x.way.locators {
			r.sotw.ResourceLocators = x.locators(subs)
		} else {
			r.sotw.ResourceNames = names
		}
		if c.rejected {
			r.text += ", a NACK"
			r.sotw.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument)}
			c.rejected = false
		}
	} else {
		r.delta = &discoverypb.DeltaDiscoveryRequest{TypeUrl: x.way.typeURL}
		if x.way.locators {
			r.delta.ResourceLocatorsSubscribe, r.delta.ResourceLocatorsUnsubscribe = x.locators(subs), x.locators(leaves)
		} else {
			r.delta.ResourceNamesSubscribe, r.delta.ResourceNamesUnsubscribe = names, x.names(leaves)
		}
		if !c.begun {
			r.delta.InitialResourceVersions = x.claims()
			r.text += fmt.Sprint(" has ", len(r.delta.InitialResourceVersions))
		}
	}
	c.begun = true
	x.up = append(x.up, r)
	x.Tell("  -> %s", r.text)
}

func (x *trial) names(subs uint) (names []string) {
	for l := range x.way.subs_ {
		if subs&(1<<l) != 0 {
			names = append(names, x.way.subs_[l].name)
		}
	}
	return names
}

func (x *trial) locators(subs uint) (locators []*discoverypb.ResourceLocator) {
	for l := range x.way.subs_ {
		if subs&(1<<l) != 0 {
			locators = append(locators, x.way.subs_[l].locator)
		}
	}
	return locators
}

// claims are the versions of what a delta client has when a stream begins. Of several variants of one name it cannot say which
// it has, so that it drops those that are members.
func (x *trial) claims() map[string]string {
	claims := map[string]string{}
	add := func(v checkValue) {
		if !v.isThere() {
			return
		}
		name, version := x.way.things[v.item()].name, x.way.versions[v.item()][v.content()]
		if other, ok := claims[name]; ok && other != version {
			version = ""
		}
		claims[name] = version
	}
	c := &x.client
	for l := range x.way.subs_ {
		add(c.has[l])
		for _, v := range c.members[l] {
			add(v)
		}
	}
	for l := range x.way.subs_ {
		for i, v := range c.members[l] {
			if v.isThere() && claims[x.way.things[i].name] == "" {
				c.members[l][i] = checkUnsaid
			}
		}
	}
	return claims
}

// deliver has the client read a response.
func (x *trial) deliver(answer int8) {
	r := x.down[0]
	x.down = x.down[1:]
	c := &x.client
	c.nonce = r.nonce
	nack := answer == answerNACK
	x.Tell("the client reads, and %s: %s", [...]string{"accepts", "rejects", "accepts, and answers later"}[answer], r.text)
	x.apply(r, nack)
	if !nack {
		c.version = r.version
	}
	switch {
	case x.way.delta:
		answer := &checkRequest{text: "an answer", delta: &discoverypb.DeltaDiscoveryRequest{TypeUrl: x.way.typeURL, ResponseNonce: r.nonce}}
		if nack {
			answer.delta.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument)}
		}
		x.up = append(x.up, answer)
	case answer == answerLate:
		x.dirty = true
	default:
		c.rejected = nack
		x.dirty = false
		x.send(x.wanted, 0)
	}
}

// apply has the client take what a response has; of one that it rejects it takes no resource.
func (x *trial) apply(r *checkResponse, nack bool) {
	c := &x.client
	for l := range x.way.subs_ {
		bit := uint(1) << l
		if x.way.delta && x.wanted&bit == 0 {
			continue
		}
		if x.way.subs_[l].collection {
			x.applyMembers(r, l, nack)
		} else {
			best := x.best(r, l)
			switch {
			case best == checkUnsaid && r.full && c.has[l].isThere() && !nack:
				c.has[l] = checkNothing
			case best == checkUnsaid:
			case nack:
				c.refused |= bit
			default:
				c.refused &^= bit
				c.has[l] = best
			}
			if r.full && nack {
				c.refused |= bit
			}
		}
		for _, e := range slices.Concat(r.removed, r.errors) {
			for i := range x.way.things {
				if e.items&(1<<i) != 0 {
					c.members[l][i] = checkUnsaid
				}
			}
			if e.subs&bit != 0 {
				c.has[l], c.members[l] = e.value, [maxCheckItems]checkValue{}
				c.refused &^= bit
			}
		}
	}
}

// best is the resource of a response that a subscription to a name takes.
func (x *trial) best(r *checkResponse, l int) checkValue {
	var of []dynparam.Parameters
	var which []checkValue
	for _, v := range r.resources {
		if it := &x.way.things[v.item()]; it.name == x.way.subs_[l].name {
			of, which = append(of, it.parameters), append(which, v)
		}
	}
	if !x.way.locators {
		if len(which) > 0 {
			return which[0]
		}
		return checkUnsaid
	}
	if at := x.way.subs_[l].constraints.Choose(of).Index; at >= 0 {
		return which[at]
	}
	return checkUnsaid
}

func (x *trial) applyMembers(r *checkResponse, l int, nack bool) {
	c := &x.client
	if nack {
		c.refused |= 1 << l
		return
	}
	if r.full {
		c.members[l] = [maxCheckItems]checkValue{}
		c.refused &^= 1 << l
	}
	for _, v := range r.resources {
		it := &x.way.things[v.item()]
		// The client cannot know which names the wildcard covers.
		if x.way.subs_[l].name != wildcardName && !x.covers(l, v.item()) || x.way.locators && !x.way.subs_[l].constraints.Match(it.parameters) {
			continue
		}
		for i := range x.way.things {
			if !x.way.locators && x.way.things[i].name == it.name {
				c.members[l][i] = checkUnsaid
			}
		}
		c.members[l][v.item()] = v
		c.has[l] = checkUnsaid
	}
}

// compare checks that the client has what the store has.
func (x *trial) compare() {
	for l := range x.way.subs_ {
		if x.wanted&(1<<l) == 0 || x.client.refused&(1<<l) != 0 {
			continue
		}
		has, want, text := x.client.has[l], x.of(l), x.way.subs_[l].text
		if x.way.subs_[l].collection {
			inError := want.content() == checkError
			if x.way.delta && inError && has != want && !x.mayBeMembers(l) {
				x.Fail("in the end %s is not in error", text)
			}
			if want == checkDenied && has != want {
				x.Fail("in the end %s has %s, not a denial", text, x.show(has))
			}
			for i := range x.way.things {
				has, want := x.client.members[l][i], x.member(l, i)
				if inError && x.isNamed(i) || !x.covers(l, i) && x.isForOther(l, i) {
					continue
				}
				if want.isThere() && has != want || !want.isThere() && has.isThere() {
					x.Fail("in the end %s has the member %s, not %s", text, x.show(has), x.show(want))
				}
			}
			continue
		}
		switch {
		case want != checkNothing && has != want:
			x.Fail("in the end %s has %s, not %s", text, x.show(has), x.show(want))
		case want == checkNothing && (x.way.delta || x.way.reports) && has != checkNothing:
			x.Fail("in the end %s has %s, and was not told that there is nothing", text, x.show(has))
		case want == checkNothing && !x.way.routes && has.isThere():
			x.Fail("in the end %s has %s, though there is nothing", text, x.show(has))
		}
	}
}

// isNamed reports whether the client subscribes, or did, to an item by its name. It cannot tell whether it is sent as a member,
// too, so that the error of the collection has ended.
func (x *trial) isNamed(item int) bool {
	for l := range x.way.subs_ {
		if x.client.wanted&(1<<l) != 0 && x.way.subs_[l].name == x.way.things[item].name {
			return true
		}
	}
	return false
}

// isForOther reports whether the client subscribes to an item by another subscription, too.
func (x *trial) isForOther(l, item int) bool {
	it := &x.way.things[item]
	for other := range x.way.subs_ {
		within := x.way.subs_[other].name == it.name || x.covers(other, item)
		if other != l && x.wanted&(1<<other) != 0 && within && x.constraintsOf(other).Match(it.parameters) {
			return true
		}
	}
	return false
}

func (x *trial) mayBeMembers(l int) bool {
	for i := range x.way.things {
		if x.covers(l, i) && x.isNamed(i) {
			return true
		}
	}
	return false
}

func (x *trial) show(v checkValue) string {
	switch v {
	case checkUnsaid:
		return "no word"
	case checkNothing:
		return "nothing"
	case checkDenied:
		return "a denial"
	}
	return x.way.things[v.item()].text + "=" + x.way.text(v.item(), v.content())
}

// readResponse reads a response.
func (x *trial) readResponse(m *discoverypb.DeltaDiscoveryResponse) *checkResponse {
	r := &checkResponse{nonce: m.Nonce, version: m.SystemVersionInfo, full: !x.way.delta && !x.way.routes}
	for _, resource := range m.Resources {
		x.readResource(r, resource.Name, resource.DynamicParameters, resource.Resource)
	}
	for _, name := range m.RemovedResources {
		r.removed = append(r.removed, x.readRemoval(&discoverypb.ResourceName{Name: name}))
	}
	for _, name := range m.RemovedResourceNames {
		r.removed = append(r.removed, x.readRemoval(name))
	}
	for _, e := range r.removed {
		r.text += " -" + e.text
	}
	x.readErrors(r, m.ResourceErrors)
	r.text = strings.TrimSpace(r.text)
	return r
}

func (x *trial) readResource(r *checkResponse, name string, parameters map[string]string, packed *anypb.Any) {
	v, ok := x.way.valueOfText(string(packed.GetValue()))
	if !ok {
		x.Fail("the server sends %q", packed.GetValue())
		return
	}
	it := &x.way.things[v.item()]
	if name != "" && name != it.name || x.way.locators && !maps.Equal(parameters, it.values) && len(parameters)+len(it.values) > 0 {
		x.Fail("the server sends %s as %s %v", it.text, name, parameters)
	}
	r.resources = append(r.resources, v)
	r.text += " " + x.show(v)
}

// readRemoval returns the subscriptions and the items that a name, with constraints or without, stands for.
func (x *trial) readRemoval(of *discoverypb.ResourceName) (e checkRemoval) {
	e.value, e.text = checkNothing, of.GetName()
	m := of.GetDynamicParameterConstraints()
	c, err := dynparam.FromProto(m)
	if err != nil {
		x.Fail("the server sends invalid constraints: %v", err)
	}
	if m != nil {
		e.text += "{" + c.String() + "}"
	}
	for l := range x.way.subs_ {
		if s := &x.way.subs_[l]; s.name == of.GetName() && (m == nil || s.constraints.Equal(c)) {
			e.subs |= 1 << l
		}
	}
	p, exact := c.Parameters()
	for i := range x.way.things {
		if it := &x.way.things[i]; it.name == of.GetName() && (m == nil || exact && it.parameters.Equal(p)) {
			e.items |= 1 << i
		}
	}
	return e
}

func (x *trial) readErrors(r *checkResponse, errors []*discoverypb.ResourceError) {
	for _, m := range errors {
		e := x.readRemoval(m.GetResourceName())
		switch code := codes.Code(m.GetErrorDetail().GetCode()); code {
		case codes.NotFound:
			if text := m.GetErrorDetail().GetMessage(); x.way.explains && text != "no "+m.GetResourceName().GetName() {
				x.Fail("the server says of %s: %s", e.text, text)
			}
		case codes.PermissionDenied:
			e.value = checkDenied
		default:
			v, ok := x.way.valueOfText(m.GetErrorDetail().GetMessage())
			if e.value = v; !ok {
				x.Fail("the server sends the error %v", m)
			}
		}
		if bits.OnesCount(e.subs|e.items) == 0 {
			x.Fail("the server sends an error for %s", e.text)
		}
		e.text += "?" + x.show(e.value)
		r.errors = append(r.errors, e)
		r.text += " " + e.text
	}
}
