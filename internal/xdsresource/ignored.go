package xdsresource

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

// IgnoredFields lists what this client ignores of a received resource: populated fields that it does not act on (gRFC
// A27: a client ignores what it does not know), and what its decoder leaves out for other reasons. It is what a decoded
// value has as Ignored, and is found even if the resource is not valid, as far as that is read. What matters comes first
// (xdsclient.SeverityWarning). A field that occurs many times is listed once, at its
// first place; one whose job another field of the message does is not listed. The list
// has at most 100 entries. Of a DPDS resource it lists the constraints for what is
// the type of no resource.
//
// It is an error if the resource is of none of the types of this package or is DPDS and cannot be read.
func IgnoredFields(resource *anypb.Any) ([]xdsclient.Ignored, error) {
	if resource.GetTypeUrl() == DynamicParameterConstraintsTypeURL {
		m, err := dynwire.UnmarshalMap(resource)
		if err != nil {
			return nil, err
		}
		return ignoredConstraints(m), nil
	}
	read := readers[resource.GetTypeUrl()]
	if read == nil {
		return nil, fmt.Errorf("no resource type with type URL %s", faults.Quote(resource.GetTypeUrl()))
	}
	v := &validator{trusted: true} // whether the server is, is not known
	read(v, resource.GetValue())
	return v.ignored.list(), nil
}

// ignoredList collects what is ignored of one resource: the same of the same field
// once, however many places have it.
type ignoredList struct {
	found []xdsclient.Ignored
	// known has the index in found, by path without indexes and group.
	known map[string]int
	// noted has the indexes in found of what was added.
	noted []int
}

// maxIgnored bounds the list of what is left out of a resource.
const maxIgnored = 100

// index is the place of an element in a list.
var index = regexp.MustCompile(`\[\d+\]`)

// add notes that the field at a path is ignored. Entries of a field, of any elements of a list, and of a group are counted as one.
func (l *ignoredList) add(path string, severity xdsclient.Severity, group, reason string) {
	key := index.ReplaceAllString(path, "") + "\x00" + group
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
	l.found = append(l.found, xdsclient.Ignored{Path: path, Reason: reason, Severity: severity, Places: 1})
}

// addAgain notes that what was noted is ignored at one more place.
func (l *ignoredList) addAgain(noted []int) {
	for _, i := range noted {
		l.found[i].Places++
	}
}

// list returns what was collected, what matters first.
func (l *ignoredList) list() []xdsclient.Ignored {
	slices.SortStableFunc(l.found, func(a, b xdsclient.Ignored) int { return cmp.Compare(b.Severity, a.Severity) })
	l.found = l.found[:min(len(l.found), maxIgnored)]
	return l.found
}

// noteUnused notes the populated fields of a message at a place, and of the messages in it, that this client does not act
// on. Those of messages that are packed in an Any are noted when these are read.
func (v *validator) noteUnused(at *faults.Path, m protoreflect.Message) {
	for _, f := range unused(m) {
		v.ignored.add(faults.Join(at.String(), f.Path), f.Severity, "", f.Reason)
	}
}

// unused returns the fields of noteUnused, with their paths from the message. A path is only made for a field that is found.
func unused(m protoreflect.Message) (found []xdsclient.Ignored) {
	for f := fields(m.GetUnknown()); f.next(); {
		path := "(unknown field " + strconv.Itoa(int(f.number)) + ")"
		found = append(found, xdsclient.Ignored{Path: path, Severity: xdsclient.SeverityInfo, Reason: notActedOn})
	}
	of := tableOf(m.Descriptor())
	for _, f := range of.unused {
		if !m.Has(f) || asksForNothing(f, m.Get(f)) || twinApplied(m, f) {
			continue
		}
		field := xdsclient.Ignored{Path: string(f.Name()), Severity: xdsclient.SeverityInfo, Reason: whyUnused(m, f)}
		if fieldsThatMatter[m.Descriptor().FullName()].has(field.Path) {
			field.Severity = xdsclient.SeverityWarning
		}
		if field.Reason != "" {
			found = append(found, field)
		}
	}
	for _, f := range of.inner {
		switch {
		case !m.Has(f):
		case f.IsList():
			list := m.Get(f).List()
			for i := range list.Len() {
				for _, in := range unused(list.Get(i).Message()) {
					in.Path = faults.Join(string(f.Name())+"["+strconv.Itoa(i)+"]", in.Path)
					found = append(found, in)
				}
			}
		default:
			for _, in := range unused(m.Get(f).Message()) {
				in.Path = faults.Join(string(f.Name()), in.Path)
				found = append(found, in)
			}
		}
	}
	return found
}

// fieldTable has the fields of a message that this client does not act on, and those with messages that may have such fields. Of
// most messages there are none.
type fieldTable struct {
	unused, inner []protoreflect.FieldDescriptor
}

// fieldTables has the tables of the messages that were met, by descriptor.
var fieldTables sync.Map

func tableOf(d protoreflect.MessageDescriptor) *fieldTable {
	if t, ok := fieldTables.Load(d); ok {
		return t.(*fieldTable)
	}
	t := new(fieldTable)
	used, listed := usedFields[d.FullName()]
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		switch {
		case listed && !used.has(string(f.Name())):
			t.unused = append(t.unused, f)
		case listed && f.Message() != nil && !f.IsMap() && usedFields[f.Message().FullName()] != nil:
			t.inner = append(t.inner, f)
		}
	}
	fieldTables.Store(d, t)
	return t
}

// whyUnused says why this client does not act on a field of a message. It is empty if others say so.
func whyUnused(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	holder, ok := m.Interface().(interface {
		GetTransportSocket() *corepb.TransportSocket
	})
	if !ok || f.Name() != "transport_socket" || isPlaintext(holder.GetTransportSocket()) {
		return notActedOn
	}
	cluster, _ := holder.(*clusterpb.Cluster) // or Http11ProxyUpstreamTransport
	if cluster.GetClusterType().GetTypedConfig().GetTypeUrl() == aggregateTypeURL {
		return ofUnderlying
	}
	return "" // Channels that do not obey it say so themselves (clustertls.Pool.Key, package explain).
}

const (
	notActedOn   = "this client does not act on the field"
	ofUnderlying = "an aggregate cluster has no connections: give transport_socket to the clusters under it"
)

// asksForNothing reports whether a field has the value by which a control plane asks for what gRPC does without the
// field.
func asksForNothing(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	does, listed := gRPCDoes[f.FullName()]
	return listed && (does == nil || proto.Equal(does, v.Message().Interface()))
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
	return proto.Size(m.Get(twin).Message().Interface()) > 0
}

// noteInert notes that a filter does nothing.
func (v *validator) noteInert(at *faults.Path, filter httpfilter.Filter) {
	if inert, ok := filter.(interface{ Inert() string }); ok {
		v.ignore(at, "%s", inert.Inert())
	}
}

// noteConfig notes the fields of a filter's configuration, or override, that the filter does not act on.
func (v *validator) noteConfig(at *faults.Path, typeURL string, config *anypb.Any) {
	if m := listedMessage(typeURL); m != nil && httpfilter.UnmarshalConfig(config, m) == nil {
		v.noteUnused(at, m.ProtoReflect())
	}
}

// listedMessage returns an empty message of a type that usedFields lists, or nil.
func listedMessage(typeURL string) proto.Message {
	name := protoreflect.FullName(typeurl.Name(typeURL))
	if t, err := protoregistry.GlobalTypes.FindMessageByName(name); err == nil && usedFields[name] != nil {
		return t.New().Interface()
	}
	return nil
}
