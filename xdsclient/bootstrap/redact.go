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

// minSecret is the length of the shortest value that is hidden. Shorter ones occur in
// ordinary words.
const minSecret = 4

// maxRedacted bounds the configurations whose values are searched for, in bytes.
const maxRedacted = 64 << 10

// redact removes the values of a configuration from the text of the error that its parser
// returned, and shortens the rest. Such parsers are asked not to repeat values, but the JSON
// decoders that they use do.
func redact(config json.RawMessage, text string) string {
	if len(config) > maxRedacted {
		return "an error that is not shown, as the configuration is too large to remove its values from the text"
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
	// If one value is the start of another, the replacer has to see the longer one first.
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
