package meshdiff

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// Op is what happens to a resource or a field.
type Op string

// The operations. Moved is of an element of a list whose order counts.
const (
	Added   Op = "added"
	Removed Op = "removed"
	Changed Op = "changed"
	Moved   Op = "moved"
)

// Change is what some clients get of a resource after an update, compared with before.
type Change struct {
	Op      Op     `json:"op"`
	TypeURL string `json:"typeUrl"`
	Name    string `json:"name"`
	// Clients are the kinds of clients; nil means all.
	Clients []Clients `json:"clients,omitempty"`
	// ErrorBefore and ErrorAfter are the errors in the place of the resource, with their codes.
	ErrorBefore string `json:"errorBefore,omitempty"`
	ErrorAfter  string `json:"errorAfter,omitempty"`
	// Fields are what differs in the resource. Of one that is added or removed they are its routes or
	// endpoints.
	Fields []Field `json:"fields,omitempty"`
}

// Field is a difference in a resource. Before and After are JSON, or text for people; an empty one means
// that there is none.
type Field struct {
	Op     Op     `json:"op"`
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Clients is a kind of clients: those with the tags, but for those of other kinds with more of them.
type Clients struct {
	// Tags are the tags of clients, the name of their service among them.
	Tags map[string]string `json:"tags,omitempty"`
	// Implementations describes the clients by what they can be sent; empty means any.
	Implementations string `json:"implementations,omitempty"`
}

// ClientsOf returns the clients that a variant with these dynamic parameters is for.
func ClientsOf(parameters map[string]string) Clients {
	c := Clients{Tags: maps.Clone(parameters)}
	_, routes := parameters[meshpolicy.RoutesKey]
	_, addresses := parameters[meshpolicy.AddressesKey]
	switch {
	case routes && addresses:
		c.Implementations = "gRPC clients in languages other than Go"
	case routes:
		c.Implementations = dialect.GRPCClients
	case addresses:
		c.Implementations = dialect.IPClients
	}
	for _, key := range []string{meshpolicy.RoutesKey, meshpolicy.AddressesKey, meshpolicy.SpecificityKey} {
		delete(c.Tags, key)
	}
	return c
}

// String returns the kind as "clients with {service=frontend,version=v2}".
func (c Clients) String() string {
	who := cmp.Or(c.Implementations, "clients")
	switch {
	case len(c.Tags) > 0:
		return who + " with " + meshpolicy.FormatTags(c.Tags)
	case c.Implementations == "":
		return "all other clients"
	default:
		return who
	}
}

// Version is one version of a resource: the resource, the error in its place, or neither.
type Version struct {
	Any *anypb.Any
	Err *status.Status
}

func (v Version) exists() bool { return v.Any != nil || v.Err != nil }

func (v Version) errorText() string {
	if v.Err == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", v.Err.Code(), v.Err.Message())
}

// Resource compares two versions of a resource. It returns nil if they are equal.
func Resource(typeURL, name string, before, after Version) *Change {
	c := &Change{Op: Changed, TypeURL: typeURL, Name: name, ErrorBefore: before.errorText(), ErrorAfter: after.errorText()}
	switch {
	case !before.exists() && !after.exists():
		return nil
	case !before.exists():
		c.Op = Added
	case !after.exists():
		c.Op = Removed
	}
	c.Fields = fieldsOf(before.Any, after.Any)
	if c.Op == Changed && c.ErrorBefore == c.ErrorAfter && len(c.Fields) == 0 {
		return nil
	}
	return c
}

// maxClients and maxValue bound what Text prints of a change.
const (
	maxClients = 10
	maxValue   = 300
)

// Sign returns the operation as a character.
func (o Op) Sign() string {
	switch o {
	case Added:
		return "+"
	case Removed:
		return "-"
	default:
		return "~"
	}
}

// Text returns the changes for people, "" if there are none.
func Text(changes []Change) string {
	var b strings.Builder
	for i := range changes {
		changes[i].text(&b)
	}
	return b.String()
}

func (c *Change) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s %s %s: %s\n", c.Op.Sign(), typeurl.Short(c.TypeURL), faults.Printable(c.Name, ""), clientsText(c.Clients))
	switch {
	case c.ErrorBefore == c.ErrorAfter:
	case c.ErrorBefore == "":
		fmt.Fprintf(b, "    + error in its place: %s\n", faults.Printable(c.ErrorAfter, ""))
	case c.ErrorAfter == "":
		fmt.Fprintf(b, "    - error in its place: %s\n", faults.Printable(c.ErrorBefore, ""))
	default:
		fmt.Fprintf(b, "    ~ error in its place: %s → %s\n", faults.Printable(c.ErrorBefore, ""), faults.Printable(c.ErrorAfter, ""))
	}
	for _, f := range c.Fields {
		fmt.Fprintf(b, "    %s\n", f)
	}
}

// clientsText lists kinds of clients.
func clientsText(kinds []Clients) string {
	if kinds == nil {
		return "all clients"
	}
	var texts []string
	for i, kind := range kinds {
		if i == maxClients && len(kinds) > maxClients+1 {
			texts = append(texts, fmt.Sprintf("and %d more kinds", len(kinds)-i))
			break
		}
		texts = append(texts, faults.Printable(kind.String(), ""))
	}
	return strings.Join(texts, "; ")
}

// String returns the difference on one line.
func (f Field) String() string {
	before, after := faults.Printable(faults.Shorten(f.Before, maxValue), ""), faults.Printable(faults.Shorten(f.After, maxValue), "")
	text := f.Op.Sign() + " " + faults.Printable(f.Path, "")
	switch {
	case f.Op == Moved:
		return text + ": now " + after
	case before != "" && after != "":
		return text + ": " + before + " → " + after
	case before+after != "":
		return text + ": " + before + after
	}
	return text
}

// Compare orders kinds: those with more tags first.
func (c Clients) Compare(o Clients) int {
	return cmp.Or(cmp.Compare(len(o.Tags), len(c.Tags)), strings.Compare(c.String(), o.String()))
}
