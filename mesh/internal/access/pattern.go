package access

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern is what a text of a node has to be, with the placeholders of a [template], and perhaps "*" at the end.
//
// No two clients of a rule may have one text. What a placeholder stands for may have "-" or "." in it, as an ID may, so
// that each further placeholder, and "*", stands behind a separator and for no text that has that separator in it. Read
// from its end, a text then has one meaning: by "{service}-*", shop-admin-1 is of shop-admin and not of shop.
type pattern struct {
	parts []part
	// wild is the separator that "*" stands behind, empty if there is no "*".
	wild string
}

// part is a text, or the name of a placeholder.
type part struct {
	text        string
	placeholder bool
	// separator is what the value of the placeholder must not have in it, empty for the first one.
	separator string
}

func parsePattern(text string) (pattern, error) {
	var p pattern
	rest, wild := strings.CutSuffix(text, "*")
	for rest != "" {
		literal, behind, open := strings.Cut(rest, "{")
		if strings.ContainsAny(literal, "*}") {
			return p, fmt.Errorf(`%q: "*" may only be the last character, and "}" needs a "{"`, literal)
		}
		if literal != "" {
			p.parts = append(p.parts, part{text: literal})
		}
		if !open {
			break
		}
		inside, after, _ := strings.Cut(behind, "}")
		name, ok := placeholderIn(rest[len(literal) : len(rest)-len(after)])
		if !ok {
			return p, fmt.Errorf("a placeholder is a name in braces, such as {service}; found %q", "{"+inside)
		}
		of := part{text: name, placeholder: true}
		if p.hasPlaceholder() {
			if of.separator = p.separator(); of.separator == "" {
				return p, errNoSeparator("{" + name + "}")
			}
		}
		p.parts = append(p.parts, of)
		rest = after
	}
	if wild {
		if p.wild = p.separator(); p.wild == "" {
			return p, errNoSeparator("*")
		}
	}
	return p, nil
}

func errNoSeparator(what string) error {
	return fmt.Errorf(`%q needs a separator before it, such as "/" or "-", without which the text of one client may also be that of another`, what)
}

func (p *pattern) hasPlaceholder() bool {
	for _, of := range p.parts {
		if of.placeholder {
			return true
		}
	}
	return false
}

// separator returns the last character so far, if it may separate what comes next.
func (p *pattern) separator() string {
	if len(p.parts) == 0 || p.parts[len(p.parts)-1].placeholder {
		return ""
	}
	last, _ := utf8.DecodeLastRuneInString(p.parts[len(p.parts)-1].text)
	if unicode.IsLetter(last) || unicode.IsDigit(last) {
		return ""
	}
	return string(last)
}

// fill returns the text with the placeholders replaced, up to "*".
func (p *pattern) fill(values map[string]string) (string, error) {
	var b strings.Builder
	for _, of := range p.parts {
		if !of.placeholder {
			b.WriteString(of.text)
			continue
		}
		value := values[of.text]
		if of.separator != "" && strings.Contains(value, of.separator) {
			return "", fmt.Errorf("{%s} is %q, which has the separator %q in it: use another separator in the access rules", of.text, value, of.separator)
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// accepts reports whether a text is what the pattern is, filled.
func (p *pattern) accepts(text, filled string) bool {
	if p.wild == "" {
		return text == filled
	}
	rest, ok := strings.CutPrefix(text, filled)
	return ok && rest != "" && !strings.Contains(rest, p.wild)
}
