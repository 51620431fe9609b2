package wire

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Locator names a subscription: a resource or a collection, and which variant of it
// (xRFC TP2).
type Locator struct {
	Name        string
	Constraints dynparam.Constraints
}

// Equal reports whether two locators are the same.
func (l Locator) Equal(other Locator) bool {
	return l.Name == other.Name && l.Constraints.Equal(other.Constraints)
}

// Compare is the order of locators in requests.
func (l Locator) Compare(other Locator) int {
	return cmp.Or(strings.Compare(l.Name, other.Name), strings.Compare(l.Constraints.Key(), other.Constraints.Key()))
}

// Size is roughly the size of a locator in a request, in bytes.
func (l Locator) Size(d Dialect) int {
	const overhead = 4 // of tags and lengths
	if !d.Locators {
		return len(l.Name) + overhead
	}
	return 2*(len(l.Name)+overhead) + len(l.Constraints.Key()) + 2*overhead
}

// Targets are the subscriptions or unsubscriptions of a request, in order. Names has each
// name once. Locators is nil if the server goes by names.
type Targets struct {
	Names    []string
	Locators []Locator
}

// Add appends the target of a subscription. Subscriptions to one name are added one after the other.
func (t *Targets) Add(l Locator, d Dialect) {
	if n := len(t.Names); n == 0 || t.Names[n-1] != l.Name {
		t.Names = append(t.Names, l.Name)
	}
	if d.Locators {
		t.Locators = append(t.Locators, l)
	}
}

// IsEmpty reports whether there are no targets.
func (t *Targets) IsEmpty() bool { return len(t.Names) == 0 && len(t.Locators) == 0 }

// Equal reports whether two lists are the same.
func (t *Targets) Equal(other *Targets) bool {
	return slices.Equal(t.Names, other.Names) && slices.EqualFunc(t.Locators, other.Locators, Locator.Equal)
}

// Missing calls f for the targets of an older list that t does not have.
func (t *Targets) Missing(older *Targets, d Dialect, f func(Locator)) {
	if d.Locators {
		missing(t.Locators, older.Locators, Locator.Compare, f)
	} else {
		missing(t.Names, older.Names, strings.Compare, func(name string) { f(Locator{Name: name}) })
	}
}

// missing calls f for elements of the older list that are not in the newer one.
func missing[T any](newer, older []T, compare func(a, b T) int, f func(T)) {
	for _, x := range older {
		for len(newer) > 0 && compare(newer[0], x) < 0 {
			newer = newer[1:]
		}
		if len(newer) == 0 || compare(newer[0], x) > 0 {
			f(x)
		}
	}
}

// The fields of ResourceLocator.
const locatorName, locatorConstraints protowire.Number = 1, 2

// roomFor returns how many bytes appendLocators adds at most.
func roomFor(locators []Locator) (size int) {
	for _, l := range locators {
		size += l.Size(Dialect{Locators: true})
	}
	return size
}

// appendLocators adds locators, as occurrences of a field, to a message in serialized form.
// They are not made messages first, as a SotW request repeats all of them.
func appendLocators(b []byte, field protowire.Number, locators []Locator) []byte {
	var one []byte
	for _, l := range locators {
		one = protowire.AppendString(protowire.AppendTag(one[:0], locatorName, protowire.BytesType), l.Name)
		if key := l.Constraints.Key(); key != "" { // the constraints in serialized form
			one = protowire.AppendString(protowire.AppendTag(one, locatorConstraints, protowire.BytesType), key)
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), one)
	}
	return b
}
