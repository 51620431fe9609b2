package testutils

import (
	"maps"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// item is a topic with what the client is to know, or was told, of it.
type item struct {
	topic
	fact
}

// news is what a client is to be told of one type.
type news struct {
	// all are the resources that the client is to have.
	all []item
	// resources, errors and absent are what the client does not know.
	resources, errors, absent []item
	// gone are the members of collections that there are no more.
	gone []item
}

func (n *news) empty() bool { return len(n.resources)+len(n.errors)+len(n.absent)+len(n.gone) == 0 }

// compare returns what the client does not know of what is wanted, and notes that it was told.
func (ts *typeState) compare(wanted facts) news {
	var n news
	for _, tp := range ts.told.inOrder() {
		old := ts.told[tp]
		if _, ok := wanted[tp]; ok {
			continue
		}
		if delete(ts.told, tp); ts.covered(wanted, tp, old) {
			n.gone = append(n.gone, item{tp, old})
		}
	}
	isNew := map[topic]bool{}
	for tp, now := range wanted {
		if old, known := ts.told[tp]; !known || old.again || !now.equal(old) {
			isNew[tp] = true
		}
	}
	// sent are the names of which a resource is sent. A client takes a variant for all locators that it
	// matches, in place of what they had: so what these have is sent with it.
	sent := map[string]bool{}
	all := ts.complete && (ts.unanswered || len(isNew) > 0 || len(n.gone) > 0)
	for tp, now := range wanted {
		if ts.byLocators && now.isResource() && (isNew[tp] || all) {
			sent[tp.name] = true
		}
	}
	for _, tp := range wanted.inOrder() {
		now := item{tp, wanted[tp]}
		if now.isResource() {
			n.all = append(n.all, now)
		}
		switch {
		case now.kept || !isNew[tp] && !sent[tp.name]:
		case now.isResource():
			n.resources = append(n.resources, now)
		case now.isError():
			n.errors = append(n.errors, now)
		case isNew[tp] && !ts.hasMembers(wanted, tp):
			n.absent = append(n.absent, now)
		}
	}
	maps.Copy(ts.told, wanted)
	return n
}

// hasMembers reports whether a topic is a collection that is not empty.
func (ts *typeState) hasMembers(wanted facts, collection topic) bool {
	for tp, f := range wanted {
		if isMember(tp.name, collection.name) && f.variant != nil && matches(ts.subscribed[collection].constraints, f.parameters) {
			return true
		}
	}
	return false
}

// sotw returns the response with the news, nil if there is nothing to say.
func (ts *typeState) sotw(n news) *discoverypb.DiscoveryResponse {
	resources := n.resources
	if ts.complete {
		resources = n.all
	}
	resp := &discoverypb.DiscoveryResponse{TypeUrl: ts.typeURL, ResourceErrors: ts.errors(n.errors)}
	for _, r := range ts.resources(resources) {
		// Only a wrapped resource has parameters (TP2, "API Changes") and cache control.
		if ts.byLocators || ts.typeURL == dynparam.MapTypeURL {
			value, _ := proto.Marshal(r) // of parts that were marshaled before
			resp.Resources = append(resp.Resources, &anypb.Any{TypeUrl: typeurl.Wrapper, Value: value})
		} else {
			resp.Resources = append(resp.Resources, r.GetResource())
		}
	}
	silent := len(resp.Resources)+len(resp.ResourceErrors) == 0
	if ts.complete {
		silent = n.empty()
	}
	if silent && !ts.unanswered {
		return nil
	}
	return resp
}

// delta is sotw for a delta stream.
func (ts *typeState) delta(n news) *discoverypb.DeltaDiscoveryResponse {
	if n.empty() && !ts.unanswered {
		return nil
	}
	resp := &discoverypb.DeltaDiscoveryResponse{
		TypeUrl: ts.typeURL, Resources: ts.resources(n.resources), ResourceErrors: ts.errors(n.errors),
	}
	for _, it := range append(n.absent, n.gone...) {
		if of := ts.resourceName(it); ts.byLocators {
			resp.RemovedResourceNames = append(resp.RemovedResourceNames, of)
		} else {
			resp.RemovedResources = append(resp.RemovedResources, of.GetName())
		}
	}
	return resp
}

// repeats makes due again the subscriptions whose names and constraints are those by which a variant of a
// collection is named that is gone: the client takes the removal for both. It reports whether there are any.
func (ts *typeState) repeats(gone []item) (found bool) {
	for _, it := range gone {
		for tp, sub := range ts.subscribed {
			if ts.byLocators && tp.name == it.topic.name && proto.Equal(sub.constraints, exactly(it.parameters)) {
				delete(ts.told, tp)
				found = true
			}
		}
	}
	return found
}

// resources returns the messages for variants, each once.
func (ts *typeState) resources(items []item) []*discoverypb.Resource {
	var messages []*discoverypb.Resource
	sent := map[*variant]bool{}
	for _, it := range items {
		if sent[it.variant] {
			continue
		}
		sent[it.variant] = true
		r := &discoverypb.Resource{Name: ts.resourceName(it).GetName(), Version: it.version, Resource: it.body}
		if ts.byLocators {
			r.DynamicParameters = it.parameters
		}
		if it.doNotCache {
			r.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
		}
		messages = append(messages, r)
	}
	return messages
}

func (ts *typeState) errors(items []item) []*discoverypb.ResourceError {
	var messages []*discoverypb.ResourceError
	for _, it := range items {
		messages = append(messages, &discoverypb.ResourceError{ResourceName: ts.resourceName(it), ErrorDetail: it.err.Proto()})
	}
	return messages
}

// resourceName names a topic to the client: a subscription in the client's words, a variant of a collection
// by constraints that only it satisfies.
func (ts *typeState) resourceName(it item) *discoverypb.ResourceName {
	if sub, ok := ts.subscribed[it.topic]; ok {
		return &discoverypb.ResourceName{Name: sub.name, DynamicParameterConstraints: sub.constraints}
	}
	of := &discoverypb.ResourceName{Name: it.variant.name}
	if ts.byLocators {
		of.DynamicParameterConstraints = exactly(it.parameters)
	}
	return of
}

func exactly(parameters map[string]string) *discoverypb.DynamicParameterConstraints {
	c := &discoverypb.DynamicParameterConstraints{KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{}}
	for key, value := range parameters {
		c.KeyConstraints[key] = &discoverypb.DynamicParameterConstraints_KeyConstraints{
			Constraints: []*discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint{{
				Constraint: &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint_Value{Value: value},
			}},
		}
	}
	return c
}
