package controlplane

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// dialect is how a client says what it subscribes to. The first request for a
// type on a stream decides it for that type (TP2, "API Changes").
type dialect int

const (
	// byNames is by plain names, as everywhere but in TP2. The client cannot
	// tell variants apart, and is sent one variant of each name at most.
	byNames dialect = iota
	// byLocators is by names with constraints.
	byLocators
)

func dialectOf(locators []*discoverypb.ResourceLocator) dialect {
	if len(locators) > 0 {
		return byLocators
	}
	return byNames
}

// topic is the unit in which a client is told of changes: its state is sent once, and
// again when it changes.
//
// A client that subscribes by names has one topic per name. For one that
// subscribes by locators, each subscription is one (its resource is whatever
// variant it gets), and so is each variant that a glob or a wildcard covers.
type topic struct {
	name nameKey
	// which is empty for a client that subscribes by names, else a mark
	// followed by the key of constraints or parameters.
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
	if len(tp.which) == 0 || tp.which[:1] != markVariant {
		return "", false
	}
	return tp.which[1:], true
}

// locator is what a client subscribed to by name, in its own spelling.
// Subscriptions by names have no constraints in it.
type locator struct {
	name        string
	constraints dynparam.Constraints
	// refused is set if the constraints cannot be used.
	refused *refusal
}

// refusal is the answer to a locator with faulty constraints.
type refusal struct {
	sent *discoverypb.DynamicParameterConstraints
	wire string
	// entry is the error that the subscription gets in place of any resource.
	entry *entry
}

// readLocator reads a locator of a request. Faulty constraints are the fault of
// this subscription only: ending the stream would take all others down as well,
// again and again.
func readLocator(m *discoverypb.ResourceLocator) locator {
	l := locator{name: m.GetName()}
	constraints, err := dynparam.FromProto(m.GetDynamicParameterConstraints())
	if err == nil {
		l.constraints = constraints
		return l
	}
	st := status.Newf(codes.InvalidArgument, "the locator of %q: %v", l.name, err)
	e, err := newResourceError(l.name, st)
	if err != nil {
		// Only a name that is not UTF-8 could fail, and no request has one.
		e = notFound("", l.name)
	}
	// Any fixed order of bytes will do, so that a repetition is seen as one.
	wire, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetDynamicParameterConstraints())
	l.refused = &refusal{sent: m.GetDynamicParameterConstraints(), wire: string(wire), entry: &entry{err: e}}
	return l
}

// askKey returns the same for equal constraints only. Faulty ones have keys that
// no others have.
func (l *locator) askKey() string {
	if l.refused != nil {
		return "!" + l.refused.wire
	}
	return l.constraints.Key()
}

// size is what the server has to remember, in bytes.
func (l *locator) size() int {
	size := len(l.name) + len(l.askKey())
	if l.refused != nil {
		size += len(l.refused.entry.err.detail.GetMessage())
	}
	return size
}

// resourceName names the subscription to its client.
func (l *locator) resourceName(d dialect) *discoverypb.ResourceName {
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

// variantName names one variant of a collection's member to a client that
// subscribes by locators: by constraints that only these parameters satisfy.
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

// requested has what a request names, by topic; of two spellings of a name the
// first counts.
func requested(d dialect, names []string, locators []*discoverypb.ResourceLocator) map[topic]locator {
	if d == byNames {
		set := make(map[topic]locator, len(names))
		for _, name := range names {
			tp := topic{name: keyOf(name)}
			if _, ok := set[tp]; !ok {
				set[tp] = locator{name: name}
			}
		}
		return set
	}
	set := make(map[topic]locator, len(locators))
	for _, m := range locators {
		l := readLocator(m)
		tp := topic{keyOf(l.name), markConstraints + l.askKey()}
		if _, ok := set[tp]; !ok {
			set[tp] = l
		}
	}
	return set
}
