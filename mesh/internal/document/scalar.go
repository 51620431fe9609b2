package document

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// Text reads a string.
func (v Value) Text() string { return v.text("a string") }

// NonEmptyText is Text for strings that must not be empty. what describes it in the error.
func (v Value) NonEmptyText(what string) string {
	text := v.text(what)
	if v.IsText() && text == "" {
		v.Fault("", "expected %s, found an empty string", what)
	}
	return text
}

func (v Value) text(what string) string {
	if !v.IsText() {
		v.Expected(what)
		return ""
	}
	return v.node.Value
}

// OneOf reads a string that must be one of the choices, or returns "".
func (v Value) OneOf(choices ...string) string {
	text := v.Text()
	if v.IsText() && !slices.Contains(choices, text) {
		v.Fault(faults.DidYouMean(text, choices), "unknown value %s", faults.Quote(text))
		return ""
	}
	return text
}

// Uint reads an integer from low to high.
func (v Value) Uint(low, high uint64) uint64 {
	if v.kind() == kindNumber {
		if n, err := strconv.ParseUint(v.node.Value, 10, 64); err == nil && low <= n && n <= high {
			return n
		}
	}
	v.Expected(fmt.Sprintf("an integer from %d to %d", low, high))
	return 0
}

// Number reads a number from low to high, or a string with one, as Kubernetes' IntOrString.
func (v Value) Number(low, high float64) float64 {
	if v.kind() == kindNumber || v.IsText() {
		if n, err := strconv.ParseFloat(v.node.Value, 64); err == nil && low <= n && n <= high {
			return n
		}
	}
	v.Expected(fmt.Sprintf("a number from %v to %v", low, high))
	return 0
}

// Bool reads true or false, which YAML also takes as True and TRUE.
func (v Value) Bool() bool {
	if v.kind() != kindBoolean {
		v.Expected("true or false")
		return false
	}
	return strings.EqualFold(v.node.Value, "true")
}
