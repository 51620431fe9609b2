package meshpolicy

import (
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// filterFields are the fields with the configuration of each type. The second spelling is that of the
// decision record's use cases.
var filterFields = [Unsupported][]string{
	RequestHeaderModifier:  {"requestHeaderModifier", "requestHeader"},
	ResponseHeaderModifier: {"responseHeaderModifier", "responseHeader"},
	RequestMirror:          {"requestMirror"},
	RequestRedirect:        {"requestRedirect"},
	URLRewrite:             {"urlRewrite"},
}

// readFilters reads a list of filters. The result is not nil. Those of routes that are for browsers are left out.
func (r *reader) readFilters(v document.Value) []Filter {
	filters := []Filter{}
	var seen [URLRewrite + 1]bool
	for _, item := range v.Items() {
		switch kind := item.Peek("type"); {
		case !r.isRoute || !kind.IsText():
		case kind.Text() == "CORS":
			r.note(item, "CORS is for browsers, and has no effect on RPCs")
			continue
		case r.kind == GRPCRouteKind && (kind.Text() == RequestRedirect.String() || kind.Text() == URLRewrite.String()):
			kind.Fault("write an HTTPRoute", "a GRPCRoute has no filter of type %s", kind.Text())
			continue
		}
		f, ok := r.readFilter(item)
		if !ok {
			continue
		}
		if seen[f.Type] && f.Type != RequestMirror {
			item.Fault("join the two", "a rule has at most one %s", f.Type)
		}
		seen[f.Type] = true
		filters = append(filters, f)
	}
	return filters
}

// readFilter reads a filter. Its type is optional, as the field implies it.
func (r *reader) readFilter(v document.Value) (f Filter, ok bool) {
	o := v.Object("type", "requestHeaderModifier", "responseHeaderModifier", "requestMirror", "requestRedirect", "urlRewrite", "requestHeader", "responseHeader")
	var config document.Value
	for known, fields := range filterFields {
		for _, field := range fields {
			switch found := o.Field(field); {
			case !found.Present():
			case config.Present():
				found.Fault("make two filters of them", "a filter does one thing, and this one is a %s already", f.Type)
			default:
				f.Type, config = FilterType(known), found
			}
		}
	}
	if !checkFilterType(o, f.Type, config.Present()) {
		return f, false
	}
	switch f.Type {
	case RequestMirror:
		r.readMirror(config, &f)
	case RequestRedirect:
		f.Redirect = readRedirect(config)
	case URLRewrite:
		f.Rewrite = readRewrite(config)
	default:
		f.Headers = readHeaderModifier(config)
	}
	return f, true
}

// readMirror reads a mirror: a MeshHTTPRoute has a percentage, a route percent or fraction.
func (r *reader) readMirror(v document.Value, f *Filter) {
	fields := []string{"backendRef", "percentage"}
	if r.isRoute {
		fields = []string{"backendRef", "percent", "fraction"}
	}
	o := v.Object(fields...)
	ref := r.readBackendRef(o.Require("backendRef"), false)
	f.Mirror = &ref
	if share := o.Field("percentage"); share.Present() {
		f.MirrorPerMillion = perMillion(share.Number(0, 100) / 100)
	}
	percent, fraction := o.Field("percent"), o.Field("fraction")
	switch {
	case percent.Present() && fraction.Present():
		fraction.Fault("keep one of the two", "percent and fraction say the same thing")
	case percent.Present():
		f.MirrorPerMillion = perMillion(float64(percent.Uint(0, 100)) / 100)
	case fraction.Present():
		f.MirrorPerMillion = readFraction(fraction)
	}
}

func readFraction(v document.Value) *uint32 {
	o := v.Object("numerator", "denominator")
	numerator, denominator := o.Require("numerator").Uint(0, 1<<31-1), uint64(100)
	if d := o.Field("denominator"); d.Present() {
		denominator = max(d.Uint(1, 1<<31-1), 1)
	}
	if numerator > denominator {
		v.Fault("", "the numerator is larger than the denominator, %d", denominator)
		return nil
	}
	return perMillion(float64(numerator) / float64(denominator))
}

func perMillion(share float64) *uint32 {
	n := uint32(math.Round(share * 1e6))
	return &n
}

// checkFilterType compares the type of a filter with the field that was found.
func checkFilterType(o document.Object, found FilterType, configured bool) bool {
	t := o.Field("type")
	name := t.OneOf(filterTypeNames[:Unsupported]...)
	switch {
	case !configured && name != "":
		o.Fault("", "a filter of type %s needs the field %q", name, filterFields[slices.Index(filterTypeNames, name)][0])
	case !configured && !t.Present() && o.IsObject():
		o.Fault("add one of requestHeaderModifier, responseHeaderModifier, requestMirror, requestRedirect, urlRewrite", "the filter does nothing")
	case name != "" && name != found.String():
		t.Fault("", "the type is %s, but the field is that of a %s", name, found)
	}
	return configured
}

// ReadHeaderName reads the name of a header, and returns it in lower case.
func ReadHeaderName(v document.Value) string {
	if !v.IsText() {
		return v.Text()
	}
	if !v.Fits(headerName, 0) {
		v.Fault("", "%q cannot be the name of a header", v.Text())
	}
	return strings.ToLower(v.Text())
}

// token is the token of RFC 9110, 5.6.2. The name of a header is a token; the name of a pseudo-header has a colon before the token.
var (
	token       = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	headerName  = regexp.MustCompile("^:?[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	headerValue = regexp.MustCompile(`^[ -~]*$`)
)

func readHeaderModifier(v document.Value) *HeaderModifier {
	o, seen := v.Object("set", "add", "remove"), make(map[string]bool)
	m := &HeaderModifier{Set: readHeaders(o.Field("set"), seen), Add: readHeaders(o.Field("add"), seen)}
	for _, item := range o.Field("remove").Items() {
		m.Remove = append(m.Remove, readEdited(item, seen))
	}
	if o.IsObject() && len(o.Names()) == 0 {
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
			if h.Value = value.Text(); value.IsText() && !value.Fits(headerValue, 0) {
				value.Fault("", "%q has a character that values of headers do not have", h.Value)
			}
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
		StatusCode: http.StatusFound,
	}
	r.Port = uint32(o.Field("port").Uint(1, 65535))
	if code := o.Field("statusCode"); code.Present() {
		switch r.StatusCode = int(code.Uint(100, 599)); r.StatusCode {
		case 0, http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			code.Fault("", "a redirect has the status 301, 302, 303, 307 or 308, not %d", r.StatusCode)
		}
	}
	if o.IsObject() && r.Scheme == "" && r.Hostname == "" && r.Path == nil && r.Port == 0 {
		o.Fault("add scheme, hostname, path or port", "the redirect leads back to where it comes from")
	}
	return r
}

func readRewrite(v document.Value) *Rewrite {
	o := v.Object("hostname", "path")
	w := &Rewrite{Hostname: readHostname(o.Field("hostname")), Path: readPathModifier(o.Field("path"))}
	if o.IsObject() && len(o.Names()) == 0 {
		o.Fault("add hostname or path", "the filter does nothing")
	}
	return w
}

func readHostname(v document.Value) string {
	host := v.Text()
	if v.IsText() && (host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:?#@", r) })) {
		v.Fault("write a name without a port", "%q is not a hostname", host)
	}
	return host
}

// readPathModifier reads a change of a path. A string is a full path, as in the decision record's
// redirects. The field type, as in the Gateway API, is optional.
func readPathModifier(v document.Value) *PathModifier {
	if !v.Present() {
		return nil
	}
	p := &PathModifier{Full: true}
	if v.IsText() {
		p.Value = v.Text()
		checkPath(v, p.Value)
		return p
	}
	o := v.Object("type", "replaceFullPath", "replacePrefixMatch")
	full, prefix := o.Field("replaceFullPath"), o.Field("replacePrefixMatch")
	name := o.Field("type").OneOf("ReplaceFullPath", "ReplacePrefixMatch")
	switch {
	case full.Present() == prefix.Present():
		if o.IsObject() {
			o.Fault("", "exactly one of replaceFullPath and replacePrefixMatch is needed")
		}
		return p
	case name == "ReplaceFullPath" && prefix.Present(), name == "ReplacePrefixMatch" && full.Present():
		o.Field("type").Fault("", "the type is %s, but the field is the other one", name)
	}
	value := full
	if p.Full = full.Present(); !p.Full {
		value = prefix
	}
	if p.Value = value.Text(); value.IsText() && (p.Full && !value.Fits(pathOnly, 0) || !p.Full && p.Value != "") {
		checkPath(value, p.Value)
	}
	return p
}
