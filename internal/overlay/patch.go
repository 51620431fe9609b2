package overlay

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// Patch is how an override changes one setting, as a JSON merge patch (RFC 7396) would: fields that
// it has replace those received, null removes, and fields that it does not have stay. A list
// is replaced as a whole. Names are those of the proto fields.
type Patch struct {
	// whole replaces the setting, if it is not nil; otherwise edits change it, or removed removes it.
	whole   proto.Message
	edits   []edit
	removed bool
}

// edit is the change of one field: of what is in a message, if within is not empty, and otherwise
// of the value, which is not valid if the field is removed.
type edit struct {
	field  protoreflect.FieldDescriptor
	within []edit
	value  protoreflect.Value
}

// newPatch reads the patch of a message. It returns nil after a fault.
func newPatch(v jsondoc.Value, of proto.Message) *Patch {
	if v.Kind() == jsondoc.KindNull {
		return &Patch{removed: true}
	}
	if m := of.ProtoReflect(); isValue(m.Descriptor()) {
		whole := m.New().Interface()
		if err := protojson.Unmarshal(v.Raw(), whole); err != nil {
			v.Expected(wanted(m.Descriptor()))
			return nil
		}
		return &Patch{whole: whole}
	}
	edits, ok := editsOf(v, of.ProtoReflect())
	if !ok {
		return nil
	}
	return &Patch{edits: edits}
}

// isValue reports whether messages of a type are values in JSON, which replace each other.
func isValue(d protoreflect.MessageDescriptor) bool {
	return d.FullName().Parent() == "google.protobuf"
}

func editsOf(v jsondoc.Value, m protoreflect.Message) (edits []edit, ok bool) {
	o := v.Object()
	if !o.IsObject() {
		return nil, false
	}
	fields := m.Descriptor().Fields()
	ok = true
	for _, name := range o.Names() {
		field := o.Field(name)
		e := edit{field: fields.ByName(protoreflect.Name(name))}
		good := e.field != nil
		switch {
		case !good:
			var known []string
			for i := range fields.Len() {
				known = append(known, string(fields.Get(i).Name()))
			}
			field.Fault(faults.DidYouMean(name, known), "%s has no such field", m.Descriptor().Name())
		case field.Kind() == jsondoc.KindNull:
		case e.field.Message() != nil && !e.field.IsList() && !e.field.IsMap() && !isValue(e.field.Message()):
			e.within, good = editsOf(field, m.NewField(e.field).Message())
		default:
			e.value, good = valueOf(field, m.New(), e.field)
		}
		ok = ok && good
		edits = append(edits, e)
	}
	if ok && len(edits) == 0 {
		v.Fault("", "expected at least one field of %s, or null, found an empty object", m.Descriptor().Name())
		return nil, false
	}
	return edits, ok
}

// valueOf reads the value of a field of m, which is empty.
func valueOf(v jsondoc.Value, m protoreflect.Message, field protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	text := fmt.Appendf(nil, "{%q: %s}", field.Name(), v.Raw())
	err := protojson.Unmarshal(text, m.Interface())
	switch {
	case err == nil && !m.Has(field):
		return protoreflect.Value{}, true // as good as removed: an empty list, or the default
	case err == nil:
		return m.Get(field), true
	case field.IsList() || field.IsMap() || field.Message() != nil && !isValue(field.Message()):
		_, cause, _ := strings.Cut(err.Error(), "): ") // behind the place in text
		v.Fault("", "expected %s in the JSON form of protobuf: %s", field.FullName().Parent().Name()+"."+field.Name(), faults.Shorten(cause, faults.MaxProblem))
	case field.Message() != nil:
		v.Expected(wanted(field.Message()))
	default:
		v.Expected(wantedKind(field.Kind()))
	}
	return protoreflect.Value{}, false
}

// wanted describes the JSON of a message that is a value.
func wanted(d protoreflect.MessageDescriptor) string {
	switch d.Name() {
	case "Duration":
		return `a duration such as "1.5s"`
	case "Any":
		return `an object with "@type"`
	}
	if value := d.Fields().ByName("value"); value != nil {
		return wantedKind(value.Kind())
	}
	return "a " + string(d.FullName())
}

func wantedKind(k protoreflect.Kind) string {
	switch k {
	case protoreflect.Uint32Kind:
		return "an integer from 0 to 4294967295"
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.BoolKind:
		return "true or false"
	default:
		return "a value of type " + k.String()
	}
}

// Apply returns the setting with the patch applied; received stays as it is, and may be a nil
// message, as the result may be. It shares messages with the patch and so must not be changed.
func (p *Patch) Apply(received proto.Message) proto.Message {
	m := received.ProtoReflect()
	switch {
	case p.removed:
		return m.Type().Zero().Interface()
	case p.whole != nil:
		return p.whole
	case m.IsValid():
		m = proto.Clone(received).ProtoReflect()
	default:
		m = m.New()
	}
	apply(m, p.edits)
	return m.Interface()
}

func apply(m protoreflect.Message, edits []edit) {
	for _, e := range edits {
		switch {
		case len(e.within) > 0:
			apply(m.Mutable(e.field).Message(), e.within)
		case e.value.IsValid():
			m.Set(e.field, e.value)
		default:
			m.Clear(e.field)
		}
	}
}

// Sets reports whether the patch says what is at a path of the setting: "retry_back_off.base_interval".
// The empty path is the whole.
func (p *Patch) Sets(path string) bool {
	edits := p.edits
	for name := range strings.SplitSeq(path, ".") {
		if len(edits) == 0 {
			return true // all that is below
		}
		name, _, _ = strings.Cut(name, "[")
		found := false
		for _, e := range edits {
			if string(e.field.Name()) == name {
				edits, found = e.within, true
			}
		}
		if !found {
			return path == ""
		}
	}
	return true
}
