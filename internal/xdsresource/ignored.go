package xdsresource

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

// IgnoredFields lists the populated fields of a received resource that this
// client does not act on (gRFC A27: a client ignores what it does not know).
// It reads the resource again and so is for tools and logs, not for each
// update. What matters comes first (xdsclient.SeverityWarning), and then the fields are
// in the order of the messages' definitions. A field that occurs many times is listed once, at its
// first place; one whose job another field of the message does is not listed. The list
// has at most 100 entries. What the decoder left out for other reasons is in the Ignored
// field of the decoded value. Of a DPDS resource it lists the constraints for what is
// the type of no resource.
//
// It is an error if the resource is of none of the types of this package or cannot be
// read.
func IgnoredFields(resource *anypb.Any) ([]xdsclient.Ignored, error) {
	return ignoredFields(resource, nil)
}

// ignoredFields is IgnoredFields. Once done is closed it ends soon, with an error or with a part of the list.
func ignoredFields(resource *anypb.Any, done <-chan struct{}) ([]xdsclient.Ignored, error) {
	if resource.GetTypeUrl() == DynamicParameterConstraintsTypeURL {
		return ignoredConstraints(resource)
	}
	m := newMessage(resource.GetTypeUrl())
	if m == nil {
		return nil, fmt.Errorf("no resource type with type URL %s", faults.Quote(resource.GetTypeUrl()))
	}
	w := fieldWalk{done: done}
	raw := resource.GetValue()
	if of, ok := nestings[resource.GetTypeUrl()]; ok {
		if head, parts := without(raw, of.outer); parts >= 0 {
			if err := w.parts(nil, raw, of); err != nil {
				return nil, err
			}
			raw = head
		}
	}
	if resource.GetTypeUrl() == typeurl.Listener {
		head, routes := routesInListener(raw)
		if err := w.parts(inListener.Field("route_config"), routes, nestings[typeurl.RouteConfiguration]); err != nil {
			return nil, err
		}
		raw = head
	}
	if err := w.read(nil, raw, m); err != nil {
		return nil, err
	}
	return w.ignored.list(), nil
}

// ignoredIn is ResourceType.Ignored: what IgnoredFields lists, and what the decoder left
// out of the value.
func ignoredIn(resource *anypb.Any, value any, done <-chan struct{}) []xdsclient.Ignored {
	list, err := ignoredFields(resource, done)
	if err != nil {
		return nil // The client was closed: the resource was decoded.
	}
	switch value := value.(type) {
	case *Listener:
		list = append(list, value.Ignored...)
	case *RouteConfiguration:
		list = append(list, value.Ignored...)
	case *Cluster:
		list = append(list, value.Ignored...)
	case *Endpoints:
		list = append(list, value.Ignored...)
	}
	sortIgnored(list)
	return list
}

func newMessage(typeURL string) proto.Message {
	switch typeURL {
	case typeurl.Listener:
		return new(listenerpb.Listener)
	case typeurl.RouteConfiguration:
		return new(routepb.RouteConfiguration)
	case typeurl.Cluster:
		return new(clusterpb.Cluster)
	case typeurl.Endpoints:
		return new(endpointpb.ClusterLoadAssignment)
	default:
		return nil
	}
}

// ignoredList collects what is ignored of one resource: the same of the same field
// once, however many places have it.
type ignoredList struct {
	found []xdsclient.Ignored
	// known has the index in found, by path without indexes and group.
	known map[string]int
	// added counts the calls of add, and noted has the indexes in found of what they added.
	added int
	noted []int
}

// maxIgnored bounds the list of what is left out of a resource.
const maxIgnored = 100

// add notes that the field at a path is ignored. Entries of a field and group are counted
// as one.
func (l *ignoredList) add(at *faults.Path, severity xdsclient.Severity, group, reason string) {
	l.added++
	key := at.WithoutIndexes() + "\x00" + group
	if i, ok := l.known[key]; ok {
		l.found[i].Places++
		l.noted = append(l.noted, i)
		return
	}
	// Warnings always have room: there are few such fields.
	if len(l.found) >= maxIgnored && severity != xdsclient.SeverityWarning || len(l.found) >= 2*maxIgnored {
		return
	}
	if l.known == nil {
		l.known = make(map[string]int)
	}
	l.known[key] = len(l.found)
	l.noted = append(l.noted, len(l.found))
	l.found = append(l.found, xdsclient.Ignored{Path: at.String(), Reason: reason, Severity: severity, Places: 1})
}

// addAgain notes that what was noted is ignored at one more place.
func (l *ignoredList) addAgain(noted []int) {
	for _, i := range noted {
		l.found[i].Places++
	}
}

// list returns what was collected, what matters first.
func (l *ignoredList) list() []xdsclient.Ignored {
	sortIgnored(l.found)
	l.found = l.found[:min(len(l.found), maxIgnored)]
	return l.found
}

func sortIgnored(list []xdsclient.Ignored) {
	slices.SortStableFunc(list, func(a, b xdsclient.Ignored) int { return cmp.Compare(b.Severity, a.Severity) })
}

// fieldWalk collects ignored fields.
type fieldWalk struct {
	ignored ignoredList
	// done is closed when the walk need not go on.
	done  <-chan struct{}
	depth int // of messages in an Any that are in an Any themselves
	// spotless has the settings of routes in which nothing is ignored.
	spotless map[string]bool
}

// maxPacked bounds that depth. The message in an Any is copied to be read, so that the cost of a
// resource nested without bound would be quadratic in its size. No decoder goes that deep.
const maxPacked = 2 * maxLBPolicyDepth

// message goes through the fields of a message.
func (w *fieldWalk) message(at *faults.Path, m protoreflect.Message) {
	if isClosed(w.done) {
		return
	}
	w.unknown(at, m.GetUnknown())
	name := m.Descriptor().FullName()
	used, listed := usedFields[name]
	if !listed {
		return // The client acts on all of it.
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case !m.Has(f):
		case used.has(string(f.Name())):
			w.value(at, f, m.Get(f))
		case asksForNothing(f, m.Get(f)), twinApplied(m, f):
		default:
			w.unused(at, m, f)
		}
	}
}

// unused notes that this client does not act on a field of a message.
func (w *fieldWalk) unused(at *faults.Path, m protoreflect.Message, f protoreflect.FieldDescriptor) {
	name := string(f.Name())
	severity, reason := xdsclient.SeverityInfo, notActedOn
	if fieldsThatMatter[m.Descriptor().FullName()].has(name) {
		severity = xdsclient.SeverityWarning
	}
	holder, ok := m.Interface().(interface {
		GetTransportSocket() *corepb.TransportSocket
	})
	if ok && name == "transport_socket" && !isPlaintext(holder.GetTransportSocket()) {
		cluster, _ := holder.(*clusterpb.Cluster) // or Http11ProxyUpstreamTransport
		if cluster.GetClusterType() == nil {
			// Channels that do not obey it say so themselves (clustertls.Pool.Key, package explain).
			w.value(at, f, m.Get(f))
			return
		}
		reason = ofUnderlying
	}
	w.ignored.add(at.Field(name), severity, "", reason)
}

const (
	notActedOn   = "this client does not act on the field"
	ofUnderlying = "an aggregate cluster has no connections: give transport_socket to the clusters under it"
)

// asksForNothing reports whether a field has the value by which a control plane asks for what gRPC does without the
// field.
func asksForNothing(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	is, listed := gRPCDoes[f.FullName()]
	return listed && is(v)
}

// twinApplied reports whether another field does the job of f.
func twinApplied(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	name, has := twins[m.Descriptor().FullName()][string(f.Name())]
	if !has {
		return false
	}
	twin := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if twin.Message() == nil || twin.IsList() {
		return m.Has(twin)
	}
	isSet := false
	m.Get(twin).Message().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		isSet = true
		return false
	})
	return isSet
}

func (w *fieldWalk) value(at *faults.Path, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	name := string(f.Name())
	switch {
	case f.IsMap():
		w.entries(at, f, v.Map())
	case f.Message() == nil:
	case f.IsList():
		for i := range v.List().Len() {
			w.message(at.Item(name, i), v.List().Get(i).Message())
		}
	default:
		w.message(at.Field(name), v.Message())
		if packed, ok := v.Message().Interface().(*anypb.Any); ok {
			w.packed(at.Field(name), packed)
		}
	}
}

// packed goes through a message in an Any, unless all its fields are used.
func (w *fieldWalk) packed(at *faults.Path, a *anypb.Any) {
	typeURL := a.GetTypeUrl()
	if wrapped, fields, err := httpfilter.TypedStruct(a); err == nil && fields != nil {
		typeURL = wrapped
	}
	if filter, ok := httpfilter.Get(typeURL).(interface{ Inert() string }); ok {
		w.ignored.add(at, xdsclient.SeverityInfo, filter.Inert(), filter.Inert())
		return
	}
	if _, listed := usedFields[a.MessageName()]; !listed {
		return
	}
	if w.depth == maxPacked {
		w.ignored.add(at, xdsclient.SeverityInfo, "", "the message is too deep in others for its fields to be listed")
		return
	}
	if m, err := a.UnmarshalNew(); err == nil {
		w.depth++
		w.message(at, m.ProtoReflect())
		w.depth--
	}
}

// entries goes through a map of configurations. The keys of metadata are for whoever knows them, and ask for
// nothing.
func (w *fieldWalk) entries(at *faults.Path, f protoreflect.FieldDescriptor, m protoreflect.Map) {
	ofAny := f.MapValue().Message() != nil && f.MapValue().Message().FullName() == "google.protobuf.Any"
	if !ofAny || f.ContainingMessage().FullName() == "envoy.config.core.v3.Metadata" {
		return
	}
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		w.packed(at.Field(string(f.Name())).Key(k.String()), m.Get(k).Message().Interface().(*anypb.Any))
	}
}

// unknown adds the fields that the generated code does not know.
func (w *fieldWalk) unknown(at *faults.Path, b protoreflect.RawFields) {
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return
		}
		b = b[n:]
		unknown := at.Field("(unknown field " + strconv.Itoa(int(number)) + ")")
		w.ignored.add(unknown, xdsclient.SeverityInfo, "", notActedOn)
	}
}
