package xdsresource

import (
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/dynxds/dynxds/internal/matching"
)

// maxRegexTotal bounds the cost of all regular expressions of one resource.
const maxRegexTotal = 1_000_000

// regexes holds the regular expressions of one resource.
type regexes struct {
	compiled map[regexKey]matching.Regex
	cost     int
}

type regexKey struct {
	pattern string
	whole   bool
}

// regex compiles a pattern that has to match a whole string.
func (v *validator) regex(at *path, pb *matcherpb.RegexMatcher) matching.Regex {
	return v.compile(at, pb, true)
}

// compile compiles a pattern, each distinct one once. max_program_size and the
// choice of engine are ignored, as gRFC A28 says. Without a Regexp in it the
// result is that of a fault.
func (v *validator) compile(at *path, pb *matcherpb.RegexMatcher, whole bool) matching.Regex {
	key := regexKey{pb.GetRegex(), whole}
	if re, ok := v.regexes.compiled[key]; ok {
		return re
	}
	at = at.field("regex")
	if v.regexes.cost > maxRegexTotal {
		v.fault(at, "the regular expressions of this resource are too large together")
		return matching.Regex{}
	}
	if v.faultsFull() {
		return matching.Regex{} // Parsing is not free, and no one would hear of it.
	}
	re, cost, err := matching.CompileRegex(key.pattern, whole)
	v.regexes.cost += cost
	if err != nil {
		v.fault(at, "%s", blame(key.pattern, shorten(err.Error(), maxQuotedLength)))
		return matching.Regex{}
	}
	if v.regexes.compiled == nil {
		v.regexes.compiled = make(map[regexKey]matching.Regex)
	}
	v.regexes.compiled[key] = re
	return re
}

// blame puts a value before what is wrong with it, unless it is empty or large.
func blame(value, fault string) string {
	if value == "" || len(value) > 1<<10 {
		return fault
	}
	return quote(value) + " " + fault
}
