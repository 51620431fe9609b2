package meshpolicy

import (
	"fmt"
	"strings"
)

// The types of filters. A rule has each at most once, except RequestMirror.
const (
	RequestHeaderModifier  = "RequestHeaderModifier"
	ResponseHeaderModifier = "ResponseHeaderModifier"
	// RequestMirror sends a copy of the request to a mirror, and ignores its response.
	RequestMirror = "RequestMirror"
	// RequestRedirect answers with a redirect. It excludes URLRewrite.
	RequestRedirect = "RequestRedirect"
	URLRewrite      = "URLRewrite"
)

// Filter changes a request or its response. The field of its type is set.
type Filter struct {
	Type string
	// Headers is for RequestHeaderModifier and ResponseHeaderModifier.
	Headers *HeaderModifier
	Mirror  *BackendRef
	// MirrorPerMillion is the share of the requests that are mirrored; nil is all.
	MirrorPerMillion *uint32
	Redirect         *Redirect
	Rewrite          *Rewrite
}

// HeaderModifier edits headers. Names are unique and in lower case.
type HeaderModifier struct {
	// Set replaces the values of a header.
	Set []Header
	// Add adds a value.
	Add []Header
	// Remove has names.
	Remove []string
}

// Header is a header and its value, which may be empty.
type Header struct{ Name, Value string }

// Redirect is the target of a redirect. Empty fields are those of the request.
type Redirect struct {
	// Scheme is "http" or "https".
	Scheme   string
	Hostname string
	Path     *PathModifier
	// Port is 0 or a port. 0 with a Scheme means the scheme's port.
	Port uint32
	// StatusCode is 301, 302, 303, 307 or 308; the default is 302.
	StatusCode int
}

// Rewrite changes the URL. It is not empty.
type Rewrite struct {
	Hostname string
	Path     *PathModifier
}

// PathModifier changes a path.
type PathModifier struct {
	// Full replaces the whole path instead of the matched prefix, which requires that all matches
	// of the rule are of type Prefix.
	Full bool
	// Value starts with "/". For a prefix it may be empty.
	Value string
}

// String returns the filter on one line.
func (f *Filter) String() string {
	switch f.Type {
	case RequestMirror:
		text := "RequestMirror " + f.Mirror.String()
		if f.MirrorPerMillion != nil {
			text += fmt.Sprintf(", %v%%", float64(*f.MirrorPerMillion)/1e4)
		}
		return text
	case RequestRedirect:
		r := f.Redirect
		port := ""
		if r.Port != 0 {
			port = fmt.Sprint(r.Port)
		}
		return words("RequestRedirect", fmt.Sprint(r.StatusCode), "scheme", r.Scheme, "hostname", r.Hostname, "port", port, "path", r.Path.String())
	case URLRewrite:
		return words("URLRewrite", "", "hostname", f.Rewrite.Hostname, "path", f.Rewrite.Path.String())
	default:
		return f.Type + f.Headers.String()
	}
}

// words joins names and values, without those whose value is empty.
func words(title, more string, pairs ...string) string {
	list := []string{strings.TrimRight(title+" "+more, " ")}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, pairs[i]+" "+pairs[i+1])
		}
	}
	return strings.Join(list, ", ")
}

// String returns the change in short; it is empty for nil.
func (p *PathModifier) String() string {
	switch {
	case p == nil:
		return ""
	case p.Full:
		return fmt.Sprintf("replaceFullPath %q", p.Value)
	default:
		return fmt.Sprintf("replacePrefixMatch %q", p.Value)
	}
}

// String returns the edits on one line, each after a space.
func (m *HeaderModifier) String() string {
	var b strings.Builder
	for _, h := range m.Set {
		fmt.Fprintf(&b, " set %s=%q", h.Name, h.Value)
	}
	for _, h := range m.Add {
		fmt.Fprintf(&b, " add %s=%q", h.Name, h.Value)
	}
	for _, name := range m.Remove {
		b.WriteString(" remove " + name)
	}
	return b.String()
}
