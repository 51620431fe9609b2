package testutils

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// wildcard is the name that subscribes to all resources of a type.
const wildcard = "*"

// topic is what a client is told something about. A client that subscribes by names has one for each name. A
// client that subscribes by locators has one for each locator, and one for each variant that a collection
// (a glob or the wildcard) has for it.
type topic struct {
	name  string // in canonical form
	which string // empty by names; of a locator markConstraints and its constraints, of a variant the key of its parameters
}

const markConstraints = "?"

func locator(name string, constraints *discoverypb.DynamicParameterConstraints) topic {
	bytes, _ := proto.MarshalOptions{Deterministic: true}.Marshal(constraints) // what was received can be sent
	return topic{name, markConstraints + string(bytes)}
}

// subscription is what a client subscribes to, in its words, and what it was told of that.
type subscription struct {
	name        string
	constraints *discoverypb.DynamicParameterConstraints // nil by names
	told        facts
}

// subscriptions are by their topics.
type subscriptions map[topic]*subscription

func (all subscriptions) add(name string, constraints *discoverypb.DynamicParameterConstraints, byLocators bool) {
	key := topic{name: xdsname.Canonical(name)}
	if byLocators {
		if constraints == nil {
			constraints = new(discoverypb.DynamicParameterConstraints)
		}
		key = locator(key.name, constraints)
	}
	all[key] = &subscription{name: name, constraints: constraints, told: facts{}}
}

// subscriptionsOf returns those of a request: TP2 has names ignored where there are locators.
func subscriptionsOf(byLocators bool, names []string, locators []*discoverypb.ResourceLocator) subscriptions {
	all := subscriptions{}
	if byLocators {
		for _, l := range locators {
			all.add(l.GetName(), l.GetDynamicParameterConstraints(), true)
		}
		return all
	}
	for _, name := range names {
		all.add(name, nil, false)
	}
	return all
}

func (v *variant) isResource() bool { return v != nil && v.err == nil }
func (v *variant) isError() bool    { return v != nil && v.err != nil }

// isNews reports whether a client that was told of another variant is to be told of this one.
func (v *variant) isNews(told *variant) bool {
	switch {
	case v == nil || told == nil:
		return v != told
	case v.err == nil && told.err == nil:
		return v.version != told.version
	}
	return v.err == nil || told.err == nil || !proto.Equal(v.err.Proto(), told.err.Proto())
}

// facts are what a client is to know, or was told: a variant or an error, or nil for neither.
type facts map[topic]*variant

// typeState is what a stream has of one type.
type typeState struct {
	typeURL string
	// complete says that responses have all resources, not only those that are new: SotW of Listeners and
	// Clusters.
	complete   bool
	byLocators bool
	// named says that an empty list does not mean the wildcard any more: a request had names, or it was one of delta.
	named      bool
	subscribed subscriptions
	// unanswered says that the client is sent a response even if there is nothing new.
	unanswered bool

	reply TypeStatus
	nonce string // of the last response
}

// hasWildcard reports whether a first request for a type without names asks for everything.
func hasWildcard(typeURL string) bool {
	return typeURL == typeurl.Listener || typeURL == typeurl.Cluster
}

// resume notes what a client that subscribes by names has from an earlier stream. Versions are by name, which says nothing of a
// variant.
func (ts *typeState) resume(versions map[string]string) {
	for name, version := range versions {
		of := topic{name: xdsname.Canonical(name)}
		for tp, sub := range ts.subscribed {
			if tp == of || !ts.byLocators && isMember(of.name, tp.name) {
				sub.told[of] = &variant{name: name, version: version}
			}
		}
	}
}

// wanted computes what the client is to know of a subscription.
func (ts *typeState) wanted(s *store, node *corepb.Node, tp topic, sub *subscription) facts {
	if tp.name != wildcard && !xdsname.IsCollection(tp.name) {
		return facts{tp: s.under(ts.typeURL, tp.name, node).choose(sub.constraints)}
	}
	w := facts{}
	if tp.name != wildcard {
		if w[tp] = s.types[ts.typeURL][tp.name][wholeName]; w[tp].isError() {
			return w // nothing is said about members
		}
	}
	for name, all := range s.types[ts.typeURL] {
		if !isMember(name, tp.name) {
			continue
		}
		// All variants that match or, for a client that knows no variants, one.
		found := all
		if !ts.byLocators {
			found = variants{"": all.choose(nil)}
		}
		for key, v := range found {
			if matches(sub.constraints, v.parameters) && (v.err == nil || tp.name != wildcard) { // TP3 has no errors for the wildcard
				w[topic{name, key}] = v
			}
		}
	}
	return w
}

// isMember reports whether a name is a member of a collection. The wildcard has everything but globs.
func isMember(name, collection string) bool {
	if xdsname.IsCollection(name) {
		return false
	}
	return collection == wildcard || strings.HasPrefix(name, xdsname.Prefix) && xdsname.CollectionOf(name) == collection
}

// compare returns what all subscriptions are to know, of which topics one was not told, and what collections have lost, and notes that
// the client was told. With keepLost, what the client has and is to lose is kept, for a response before its other types have changed
// (make before break).
func (ts *typeState) compare(s *store, node *corepb.Node, keepLost bool) (now facts, isNew map[topic]bool, gone facts) {
	now, isNew, gone = facts{}, map[topic]bool{}, facts{}
	for tp, sub := range ts.subscribed {
		wanted := ts.wanted(s, node, tp, sub)
		failed := wanted[tp].isError()
		for of, old := range sub.told {
			v, still := wanted[of]
			if keepLost && old.isResource() && !v.isResource() && (of == tp || !failed) {
				wanted[of] = old
			} else if !still && !failed {
				gone[of] = old
				if _, known := now[of]; !known { // by another subscription
					now[of] = nil
				}
			}
		}
		for of, v := range wanted {
			// That a collection is not there is said only of one without members.
			if old, known := sub.told[of]; (!known || v.isNews(old)) && (v != nil || len(wanted) == 1) {
				isNew[of] = true
			}
			if !now[of].isResource() {
				now[of] = v
			}
		}
		sub.told = wanted
	}
	return now, isNew, gone
}

// news returns what the client is to be told of a type, nil if there is nothing, and notes that it was told. keepLost is for compare.
func (st *stream) news(ts *typeState, s *store, keepLost bool) *discoverypb.DeltaDiscoveryResponse {
	now, isNew, gone := ts.compare(s, st.node, keepLost)
	all := ts.complete && (ts.unanswered || len(isNew)+len(gone) > 0)
	// sent are the names of which a resource is sent. A client takes a variant for all locators that it
	// matches, in place of what they had: so what these have is sent with it.
	sent := map[string]bool{}
	for of, v := range now {
		if ts.byLocators && v.isResource() && (isNew[of] || all) {
			sent[of.name] = true
		}
	}
	resp := &discoverypb.DeltaDiscoveryResponse{TypeUrl: ts.typeURL}
	said := map[*variant]bool{} // several topics may have one
	for _, of := range slices.SortedFunc(maps.Keys(now), func(a, b topic) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.which, b.which))
	}) {
		v, again := now[of], isNew[of] || sent[of.name]
		switch {
		case v.isResource():
			if (all || again) && !said[v] {
				said[v] = true
				resp.Resources = append(resp.Resources, ts.resource(of, v))
			}
		case v.isError():
			if again {
				resp.ResourceErrors = append(resp.ResourceErrors, &discoverypb.ResourceError{ResourceName: ts.resourceName(of, v), ErrorDetail: v.err.Proto()})
			}
		case isNew[of] || gone[of] != nil:
			st.remove(ts, of, gone[of], resp)
		}
	}
	nothing := len(resp.Resources)+len(resp.ResourceErrors)+len(resp.RemovedResources)+len(resp.RemovedResourceNames) == 0
	if nothing && !ts.unanswered && !all {
		return nil
	}
	return resp
}

// remove adds to a response that something is not there, or not any more: was is the variant that a collection had. SotW says so only
// by a response that is complete.
func (st *stream) remove(ts *typeState, tp topic, was *variant, resp *discoverypb.DeltaDiscoveryResponse) {
	of := ts.resourceName(tp, was)
	switch {
	case !st.delta:
	case !ts.byLocators:
		resp.RemovedResources = append(resp.RemovedResources, of.GetName())
	default:
		resp.RemovedResourceNames = append(resp.RemovedResourceNames, of)
		// A client takes the removal of a variant for that of a locator with these constraints too: what it has is sent again.
		if sub := ts.subscribed[locator(tp.name, of.GetDynamicParameterConstraints())]; was != nil && sub != nil {
			sub.told = facts{}
			st.due = true
		}
	}
}

// resource returns the message for a variant.
func (ts *typeState) resource(of topic, v *variant) *discoverypb.Resource {
	r := &discoverypb.Resource{Name: ts.resourceName(of, v).GetName(), Version: v.version, Resource: v.body}
	if ts.byLocators {
		r.DynamicParameters = v.parameters
	}
	if v.doNotCache {
		r.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
	}
	return r
}

// resourceName names a topic to the client: a subscription in the client's words, a variant of a collection
// by constraints that only it satisfies.
func (ts *typeState) resourceName(tp topic, v *variant) *discoverypb.ResourceName {
	if sub, ok := ts.subscribed[tp]; ok {
		return &discoverypb.ResourceName{Name: sub.name, DynamicParameterConstraints: sub.constraints}
	}
	of := &discoverypb.ResourceName{Name: v.name}
	if ts.byLocators {
		exact, _ := dynparam.Exact(v.parameters) // that are sent to clients
		of.DynamicParameterConstraints = exact.ToProto()
	}
	return of
}
