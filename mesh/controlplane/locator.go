package controlplane

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// addressing is the form of a client's subscriptions. The first request for a type on a stream decides
// it for that type (TP2, "API Changes").
type addressing int

const (
	// byNames is by plain names. The client does not know variants, and is sent at most one of
	// each name.
	byNames addressing = iota
	// byLocators is by names with constraints (TP2).
	byLocators
)

func addressingOf(locators []*discoverypb.ResourceLocator) addressing {
	if len(locators) > 0 {
		return byLocators
	}
	return byNames
}

// checkAddressing returns INVALID_ARGUMENT for locators of a client that began by names. They would never be
// answered. TP2 specifies only that names after locators are ignored.
func (sub *subscription) checkAddressing(locators []*discoverypb.ResourceLocator) error {
	if sub.addressing == byLocators || len(locators) == 0 {
		return nil
	}
	return status.Errorf(codes.InvalidArgument,
		"a resource locator of %q after a first request without locators for %s: that decides for the stream (xRFC TP2), so send locators from the first request of a type on, or open another stream",
		locators[0].GetName(), sub.typeURL)
}

// topic is the unit of changes: its state is sent once, and again when it changes.
//
// A client that subscribes by names has one topic per name. A client that subscribes by locators
// has one for each subscription, whatever variant that gets, and one for each variant that a glob
// or a wildcard covers.
type topic struct {
	name nameKey
	// which is empty for a client that subscribes by names, otherwise a mark and the key of
	// constraints or parameters.
	which string
}

const (
	markConstraints = "?"
	markVariant     = "="
)

func variantTopic(name nameKey, p dynparam.Parameters) topic {
	return topic{name, markVariant + p.Key()}
}

// variant returns the key of the parameters, if the topic is a variant.
func (tp topic) variant() (parameters string, ok bool) {
	return strings.CutPrefix(tp.which, markVariant)
}

// locator is a subscription by name, in the client's spelling. Subscriptions by names have no
// constraints.
type locator struct {
	name        string
	constraints dynparam.Constraints
	// refused is set if the constraints are invalid, or the client may not have the resource.
	refused *refusal
}

// refusal is the answer to a locator with invalid constraints, or to one that is denied.
type refusal struct {
	// denied is set if Options.Authorize has refused the name. The topic is that of the constraints.
	denied bool
	// contradicts is set beside it if it is not Options.Authorize, but the constraints of the client's node.
	contradicts bool
	sent        *discoverypb.DynamicParameterConstraints
	wire        string
	// entry is the error in place of any resource.
	entry *entry
}

// readLocator reads a locator of a request. Invalid constraints are an error of this subscription
// only: ending the stream would end all others as well, after every reconnect.
func readLocator(m *discoverypb.ResourceLocator) locator {
	l := locator{name: m.GetName()}
	constraints, err := dynparam.FromProto(m.GetDynamicParameterConstraints())
	if err == nil {
		l.constraints = constraints
		return l
	}
	e := errorEntry(l.name, status.Newf(codes.InvalidArgument, "the locator of %q: %v", l.name, err))
	// Deterministic, so that equal locators have equal keys.
	wire, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetDynamicParameterConstraints())
	l.refused = &refusal{sent: m.GetDynamicParameterConstraints(), wire: string(wire), entry: e}
	return l
}

// askKey is equal for equal constraints only. Keys of invalid ones differ from all others.
func (l *locator) askKey() string {
	if l.refused != nil {
		return "!" + l.refused.wire
	}
	return l.constraints.Key()
}

// isDenied reports whether the client may not have the resource.
func (l *locator) isDenied() bool { return l.refused != nil && l.refused.denied }

// markSpelling begins the key of an ask for a name in another than its canonical form. No other key begins so.
const markSpelling = "~"

// boundKey returns the key of an ask from that of its locator and what the client's node adds. Keys of constraints and of
// refused locators do not begin with "&".
func boundKey(key string, bound dynparam.Constraints) string {
	if bound.IsZero() {
		return key
	}
	return fmt.Sprintf("&%d %s%s", len(key), key, bound.Key())
}

// which is the rest of the topic of a client that subscribes by locators.
func (l *locator) which() string {
	if l.refused != nil && !l.isDenied() {
		return markConstraints + l.askKey()
	}
	return markConstraints + l.constraints.Key()
}

// resourceName returns the name of the subscription for its client.
func (l *locator) resourceName(d addressing) *discoverypb.ResourceName {
	m := &discoverypb.ResourceName{Name: l.name}
	switch {
	case d == byNames:
	case l.refused != nil:
		m.DynamicParameterConstraints = l.refused.sent
	default:
		m.DynamicParameterConstraints = l.constraints.ToProto()
	}
	return m
}

// variantName returns the name of one variant of a collection's member for a client that subscribes
// by locators: with constraints that only these parameters satisfy.
func variantName(name string, p dynparam.Parameters) *discoverypb.ResourceName {
	exactly := new(discoverypb.DynamicParameterConstraints)
	for key, value := range p.Map() {
		if exactly.KeyConstraints == nil {
			exactly.KeyConstraints = map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{}
		}
		exactly.KeyConstraints[key] = &discoverypb.DynamicParameterConstraints_KeyConstraints{
			Constraints: []*discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint{{
				Constraint: &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint_Value{Value: value},
			}},
		}
	}
	return &discoverypb.ResourceName{Name: name, DynamicParameterConstraints: exactly}
}

// requested returns the subscriptions of a request by topic. Of two spellings of a name the first
// counts.
func requested(d addressing, names []string, locators []*discoverypb.ResourceLocator) map[topic]locator {
	set := make(map[topic]locator, len(names)+len(locators))
	add := func(which string, l locator) {
		if tp := (topic{keyOf(l.name), which}); !isIn(set, tp) {
			set[tp] = l
		}
	}
	if d == byNames {
		for _, name := range names {
			add("", locator{name: name})
		}
		return set
	}
	for _, m := range locators {
		l := readLocator(m)
		add(l.which(), l)
	}
	return set
}
