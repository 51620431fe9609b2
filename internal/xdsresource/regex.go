package xdsresource

import (
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// maxRegexTotal bounds the cost of all regular expressions of one resource.
const maxRegexTotal = 1_000_000

type regexKey struct {
	pattern string
	whole   bool
}

// compiledRegex is a regular expression, and what compiling it came to.
type compiledRegex struct {
	matching.Regex
	cost int
}

// regex compiles a pattern that has to match a whole string.
func (d *matchDecoder) regex(at *faults.Path, pb *matcherpb.RegexMatcher) matching.Regex {
	return d.compile(at, pb, true)
}

// compile compiles a pattern, each distinct one once. It ignores max_program_size and the
// choice of engine (gRFC A28). After an error, the result has no Regexp.
func (d *matchDecoder) compile(at *faults.Path, pb *matcherpb.RegexMatcher, whole bool) matching.Regex {
	d.tied = true
	key := regexKey{pb.GetRegex(), whole}
	if re, ok := d.compiled[key]; ok {
		return re.Regex
	}
	at = at.Field("regex")
	if d.cost > maxRegexTotal {
		d.fault(at, "the regular expressions of this resource are too large together")
		return matching.Regex{}
	}
	if d.faults.Full() {
		return matching.Regex{} // Parsing takes time, and a fault would not be listed.
	}
	re, known := d.last[key]
	if !known {
		var err error
		re.Regex, re.cost, err = matching.CompileRegex(key.pattern, whole)
		if err != nil {
			d.cost += re.cost
			d.fault(at, "%s", blame(key.pattern, faults.Shorten(err.Error(), faults.MaxQuoted)))
			return matching.Regex{}
		}
	}
	d.cost += re.cost
	if d.compiled == nil {
		d.compiled = make(map[regexKey]compiledRegex)
	}
	d.compiled[key] = re
	return re.Regex
}

// blame returns the text of an error with the value before it, unless that is empty or
// large.
func blame(value, fault string) string {
	if value == "" || len(value) > 1<<10 {
		return fault
	}
	return faults.Quote(value) + " " + fault
}
