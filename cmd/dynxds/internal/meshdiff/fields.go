package meshdiff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// fieldsOf compares two versions of a resource. nil is one that is not there: then only routes and
// endpoints count.
func fieldsOf(before, after *anypb.Any) []Field {
	var d differ
	switch {
	case before != nil && after != nil:
		d.anys("", before, after)
	case before != nil:
		if m, err := before.UnmarshalNew(); err == nil {
			d.message("", m.ProtoReflect(), hollow(m).ProtoReflect())
		}
	case after != nil:
		if m, err := after.UnmarshalNew(); err == nil {
			d.message("", hollow(m).ProtoReflect(), m.ProtoReflect())
		}
	}
	return d.fields
}

// hollow returns a copy of a resource without its routes or endpoints.
func hollow(m proto.Message) proto.Message {
	m = proto.Clone(m)
	switch m := m.(type) {
	case *routepb.RouteConfiguration:
		for _, host := range m.GetVirtualHosts() {
			host.Routes = nil
		}
	case *endpointpb.ClusterLoadAssignment:
		for _, locality := range m.GetEndpoints() {
			locality.LbEndpoints = nil
		}
	}
	return m
}

// differ collects the differences of two messages.
type differ struct{ fields []Field }

func (d *differ) add(path, before, after string) {
	path = strings.TrimSuffix(path, ":")
	switch {
	case before == after:
	case before == "":
		d.fields = append(d.fields, Field{Op: Added, Path: path, After: after})
	case after == "":
		d.fields = append(d.fields, Field{Op: Removed, Path: path, Before: before})
	default:
		d.fields = append(d.fields, Field{Op: Changed, Path: path, Before: before, After: after})
	}
}

// child returns the path of a part of what a path names.
func child(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.HasSuffix(path, ":"):
		return path + " " + name
	default:
		return path + "." + name
	}
}

// message compares two messages of one type.
func (d *differ) message(path string, before, after protoreflect.Message) {
	fields := before.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		hasBefore, hasAfter := before.Has(f), after.Has(f)
		a, b := before.Get(f), after.Get(f)
		if hasBefore == hasAfter && a.Equal(b) {
			continue
		}
		at := child(path, string(f.Name()))
		switch {
		case f.IsMap():
			d.maps(at, f.MapValue(), a.Map(), b.Map())
		case f.IsList() && f.Message() != nil:
			d.list(path, string(f.Name()), messages(a.List()), messages(b.List()))
		case f.IsList() || f.Message() == nil:
			d.add(at, text(f, a, hasBefore), text(f, b, hasAfter))
		case hasBefore && hasAfter:
			d.values(at, a.Message(), b.Message())
		default:
			d.add(at, text(f, a, hasBefore), text(f, b, hasAfter))
		}
	}
}

// values compares two messages that both exist.
func (d *differ) values(path string, before, after protoreflect.Message) {
	a, isAny := before.Interface().(*anypb.Any)
	switch {
	case isAny:
		d.anys(path, a, after.Interface().(*anypb.Any))
	case before.Descriptor().ParentFile().Package() == "google.protobuf":
		// Durations, wrappers and the like are one value to a reader.
		d.add(path, messageText(before.Interface()), messageText(after.Interface()))
	default:
		d.message(path, before, after)
	}
}

func (d *differ) anys(path string, before, after *anypb.Any) {
	a, errA := before.UnmarshalNew()
	b, errB := after.UnmarshalNew()
	if errA != nil || errB != nil || before.GetTypeUrl() != after.GetTypeUrl() {
		d.add(cmp.Or(path, "content"), messageText(before), messageText(after))
		return
	}
	d.values(path, a.ProtoReflect(), b.ProtoReflect())
}

// maps compares two maps key by key.
func (d *differ) maps(path string, value protoreflect.FieldDescriptor, before, after protoreflect.Map) {
	keys := map[string]protoreflect.MapKey{}
	for _, m := range []protoreflect.Map{before, after} {
		for key := range m.Range {
			keys[key.String()] = key
		}
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		key, at := keys[name], path+"["+strconv.Quote(name)+"]"
		a, b := before.Get(key), after.Get(key)
		switch {
		case a.IsValid() && b.IsValid() && a.Equal(b):
		case a.IsValid() && b.IsValid() && value.Message() != nil:
			d.values(at, a.Message(), b.Message())
		default:
			d.add(at, text(value, a, a.IsValid()), text(value, b, b.IsValid()))
		}
	}
}

// messages returns the elements of a list of messages.
func messages(list protoreflect.List) []proto.Message {
	all := make([]proto.Message, list.Len())
	for i := range all {
		all[i] = list.Get(i).Message().Interface()
	}
	return all
}

// text returns a value as compact JSON, or "" for none.
func text(f protoreflect.FieldDescriptor, v protoreflect.Value, has bool) string {
	switch {
	case !has:
		return ""
	case f.IsList():
		parts := make([]string, v.List().Len())
		for i := range parts {
			parts[i] = scalar(f, v.List().Get(i))
		}
		return "[" + strings.Join(parts, ",") + "]"
	default:
		return scalar(f, v)
	}
}

func scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return messageText(v.Message().Interface())
	case protoreflect.EnumKind:
		if name := f.Enum().Values().ByNumber(v.Enum()); name != nil {
			return string(name.Name())
		}
		return strconv.Itoa(int(v.Enum()))
	case protoreflect.StringKind, protoreflect.BytesKind:
		quoted, _ := json.Marshal(v.Interface()) // strings and bytes always can be
		return string(quoted)
	default:
		return fmt.Sprint(v.Interface())
	}
}

// messageText returns a message as compact JSON, or its size if it cannot be read.
func messageText(m proto.Message) string {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return fmt.Sprintf("%d bytes that cannot be read", proto.Size(m))
	}
	var b bytes.Buffer
	_ = json.Compact(&b, text) // protojson varies its white space; what it writes is JSON
	return b.String()
}
