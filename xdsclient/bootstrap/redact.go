package bootstrap

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// minSecret is the length from which on a value counts as worth hiding. Shorter
// ones would tear holes into ordinary words.
const minSecret = 4

// maxRedacted bounds, in bytes, the configurations whose values are looked for.
const maxRedacted = 64 << 10

// redact removes the values of a configuration from the text of an error
// that someone else's parser returned for it, and cuts what is left to a
// bearable length. Such parsers are asked not to repeat values, but the JSON
// decoders they are made with do.
func redact(config json.RawMessage, text string) string {
	if len(config) > maxRedacted {
		return "an error that is not shown, as it might repeat parts of so large a configuration"
	}
	var values []string
	collect := func(s string) {
		if len(s) >= minSecret {
			quoted := strconv.Quote(s)
			values = append(values, s, quoted[1:len(quoted)-1])
		}
	}
	collect(string(config))
	scalars(canonical(config), func(s string) {
		collect(s)
		// %v of a json.RawMessage prints its bytes in decimal.
		collect(fmt.Sprint([]byte(s)))
		collect(fmt.Sprint([]byte(strconv.Quote(s))))
	})
	// Of two values of which one starts with the other, the replacer has to
	// see the longer one first.
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(values))
	for _, s := range values {
		pairs = append(pairs, s, "[hidden]")
	}
	return faults.Shorten(strings.NewReplacer(pairs...).Replace(text), 500)
}

// scalars calls f for every string and number in v, but not for keys.
func scalars(v any, f func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			scalars(member, f)
		}
	case []any:
		for _, element := range v {
			scalars(element, f)
		}
	case string:
		f(v)
	case json.Number:
		f(v.String())
	}
}
