package meshpolicy

import (
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// filterFields are the fields with the configuration of a filter, and filterTypes the types that these imply. The last two fields are the
// spelling of the decision record's use cases.
var (
	filterFields = []string{"requestHeaderModifier", "responseHeaderModifier", "requestMirror", "requestRedirect", "urlRewrite", "requestHeader", "responseHeader"}
	filterTypes  = []string{RequestHeaderModifier, ResponseHeaderModifier, RequestMirror, RequestRedirect, URLRewrite, RequestHeaderModifier, ResponseHeaderModifier}
)

// readFilters reads a list of filters. The result is not nil. Those of routes that are for browsers are left out.
func (r *reader) readFilters(v document.Value) []Filter {
	filters := []Filter{}
	for _, item := range v.Items() {
		switch kind := item.Peek("type"); {
		case !r.isRoute || !kind.IsText():
		case kind.Text() == "CORS":
			r.note(item, "CORS is for browsers, and has no effect on RPCs")
			continue
		case r.kind == GRPCRouteKind && (kind.Text() == RequestRedirect || kind.Text() == URLRewrite):
			kind.Fault("write an HTTPRoute", "a GRPCRoute has no filter of type %s", kind.Text())
			continue
		}
		f := r.readFilter(item)
		if f.Type == "" {
			continue
		}
		if f.Type != RequestMirror && slices.ContainsFunc(filters, func(o Filter) bool { return o.Type == f.Type }) {
			item.Fault("join the two", "a rule has at most one %s", f.Type)
		}
		filters = append(filters, f)
	}
	return filters
}

// readFilter reads a filter. It has no type if there is nothing of one. The field type is optional, as the configuration implies it.
func (r *reader) readFilter(v document.Value) (f Filter) {
	o := v.Object(append([]string{"type"}, filterFields...)...)
	var config document.Value
	for i, field := range filterFields {
		switch found := o.Field(field); {
		case !found.Present():
		case config.Present():
			found.Fault("make two filters of them", "a filter does one thing, and this one is a %s already", f.Type)
		default:
			f.Type, config = filterTypes[i], found
		}
	}
	t := o.Field("type")
	switch written := t.OneOf(filterTypes[:5]...); {
	case f.Type == "" && written != "":
		o.Fault("", "a filter of type %s needs the field %q", written, filterFields[slices.Index(filterTypes, written)])
	case f.Type == "" && !t.Present() && o.IsObject():
		o.Fault("add one of "+strings.Join(filterFields[:5], ", "), "the filter does nothing")
	case f.Type != "" && written != "" && written != f.Type:
		t.Fault("", "the type is %s, but the field is that of a %s", written, f.Type)
	}
	switch f.Type {
	case RequestMirror:
		r.readMirror(config, &f)
	case RequestRedirect:
		f.Redirect = readRedirect(config)
	case URLRewrite:
		f.Rewrite = r.readRewrite(config)
	case RequestHeaderModifier, ResponseHeaderModifier:
		f.Headers = r.readHeaderModifier(config)
	}
	return f
}

// readMirror reads a mirror: a MeshHTTPRoute has a percentage, a route percent or fraction.
func (r *reader) readMirror(v document.Value, f *Filter) {
	fields := []string{"backendRef", "percentage"}
	if r.isRoute {
		fields = []string{"backendRef", "percent", "fraction"}
	}
	o := v.Object(fields...)
	ref := r.readBackendRef(o.Require("backendRef"))
	f.Mirror, ref.Weight = &ref, 0
	share := 0.0
	switch percentage, percent, fraction := o.Field("percentage"), o.Field("percent"), o.Field("fraction"); {
	case percent.Present() && fraction.Present():
		fraction.Fault("keep one of the two", "percent and fraction say the same thing")
	case percentage.Present():
		share = percentage.Number(0, 100) / 100
	case percent.Present():
		share = float64(percent.Uint(0, 100)) / 100
	case fraction.Present():
		share = readFraction(fraction)
	default:
		return
	}
	perMillion := max(uint32(math.Round(share*1e6)), uint32(math.Ceil(share))) // the smallest share, if it is less than that
	f.MirrorPerMillion = &perMillion
}

func readFraction(v document.Value) float64 {
	o := v.Object("numerator", "denominator")
	numerator, denominator := o.Require("numerator").Uint(0, 1<<31-1), uint64(100)
	if d := o.Field("denominator"); d.Present() {
		denominator = max(d.Uint(1, 1<<31-1), 1)
	}
	if numerator > denominator {
		v.Fault("", "the numerator is larger than the denominator, %d", denominator)
	}
	return float64(min(numerator, denominator)) / float64(denominator)
}

// token is the token of RFC 9110, 5.6.2. The name of a header is a token; the name of a pseudo-header has a colon before the token.
var (
	token       = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	headerName  = regexp.MustCompile("^:?[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	headerValue = regexp.MustCompile(`^[ -~]*$`)
)

// ReadHeaderName reads the name of a header, and returns it in lower case.
func ReadHeaderName(v document.Value) string {
	return strings.ToLower(readText(v, headerName, "", "%q cannot be the name of a header"))
}

func (r *reader) readHeaderModifier(v document.Value) *HeaderModifier {
	o, seen := v.Object("set", "add", "remove"), make(map[string]bool)
	m := &HeaderModifier{Set: readHeaders(o.Field("set"), seen), Add: readHeaders(o.Field("add"), seen)}
	for _, item := range o.Field("remove").Items() {
		m.Remove = append(m.Remove, readEdited(item, seen))
	}
	if o.IsObject() && len(o.Names()) == 0 && !r.isRoute {
		o.Fault("add set, add or remove", "the filter does nothing")
	}
	return m
}

func readHeaders(v document.Value, seen map[string]bool) (headers []Header) {
	for _, item := range v.Items() {
		o := item.Object("name", "value")
		h := Header{Name: readEdited(o.Require("name"), seen)}
		// In the decision record's use cases a value is null.
		if value := o.Require("value"); !value.Absent() {
			h.Value = readText(value, headerValue, "", "%q has a character that values of headers do not have")
		}
		headers = append(headers, h)
	}
	return headers
}

// readEdited reads the name of a header to edit, which must not be among those that were seen.
func readEdited(v document.Value, seen map[string]bool) string {
	name := ReadHeaderName(v)
	switch {
	case name == "":
	case name[0] == ':' || name == "host":
		v.Fault("use URLRewrite for path and host", "the header %q cannot be edited", name)
	case seen[name]:
		v.Fault("keep one of them", "the header %q is edited twice", name)
	}
	seen[name] = true
	return name
}

func readRedirect(v document.Value) *Redirect {
	o := v.Object("scheme", "hostname", "path", "port", "statusCode")
	r := &Redirect{
		Scheme:     o.Field("scheme").OneOf("http", "https"),
		Hostname:   readHostname(o.Field("hostname")),
		Path:       readPathModifier(o.Field("path")),
		Port:       uint32(o.Field("port").Uint(1, 65535)),
		StatusCode: http.StatusFound,
	}
	if code := o.Field("statusCode"); code.Present() {
		r.StatusCode = int(code.Uint(100, 599))
		if r.StatusCode != 0 && !slices.Contains([]int{301, 302, 303, 307, 308}, r.StatusCode) {
			code.Fault("", "a redirect has the status 301, 302, 303, 307 or 308, not %d", r.StatusCode)
		}
	}
	if o.IsObject() && *r == (Redirect{StatusCode: r.StatusCode}) {
		o.Fault("add scheme, hostname, path or port", "the redirect leads back to where it comes from")
	}
	return r
}

func (r *reader) readRewrite(v document.Value) *Rewrite {
	o := v.Object("hostname", "path")
	if o.IsObject() && len(o.Names()) == 0 && !r.isRoute {
		o.Fault("add hostname or path", "the filter does nothing")
	}
	return &Rewrite{Hostname: readHostname(o.Field("hostname")), Path: readPathModifier(o.Field("path"))}
}

// hostname is of visible characters but those that separate a host from other parts of a URL.
var hostname = regexp.MustCompile(`^[!"$-.0-9;->A-~]+$`)

func readHostname(v document.Value) string {
	return readText(v, hostname, "write a name without a port", "%q is not a hostname")
}

// readPathModifier reads a change of a path. A string is a full path, as in the decision record's
// redirects. The field type, as in the Gateway API, is optional.
func readPathModifier(v document.Value) *PathModifier {
	if !v.Present() {
		return nil
	}
	p := &PathModifier{Full: true}
	value := v
	if !v.IsText() {
		o := v.Object("type", "replaceFullPath", "replacePrefixMatch")
		full, prefix := o.Field("replaceFullPath"), o.Field("replacePrefixMatch")
		name := o.Field("type").OneOf("ReplaceFullPath", "ReplacePrefixMatch")
		if full.Present() == prefix.Present() {
			if o.IsObject() {
				o.Fault("", "exactly one of replaceFullPath and replacePrefixMatch is needed")
			}
			return p
		}
		if value, p.Full = full, full.Present(); !p.Full {
			value = prefix
		}
		if name != "" && p.Full != (name == "ReplaceFullPath") {
			o.Field("type").Fault("", "the type is %s, but the field is the other one", name)
		}
	}
	if p.Value = value.Text(); p.Full || p.Value != "" {
		checkPath(value)
	}
	return p
}
