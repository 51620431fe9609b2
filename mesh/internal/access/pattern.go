package access

import (
	"fmt"
	"regexp"
	"slices"
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
	placeholders []placed
	// rest is what is behind them, without "*". wild is the separator that "*" stands behind, empty if there is none.
	rest, wild string
}

// placed is a placeholder with the text before it, and the separator that its value must not have in it, empty for the first.
type placed struct{ before, name, separator string }

var placeholder = regexp.MustCompile(`\{[^{}*]+\}`)

// parsePattern reads a pattern with the placeholders of a template, which are all if the template is not valid.
func parsePattern(text string, of template) (p pattern, err error) {
	rest, wild := strings.CutSuffix(text, "*")
	if strings.ContainsAny(placeholder.ReplaceAllString(rest, ""), "{}*") {
		return p, fmt.Errorf(`%q: "*" may only be the last character, and a placeholder is a name in braces, such as {service}`, text)
	}
	for at := placeholder.FindStringIndex(rest); at != nil; at = placeholder.FindStringIndex(rest) {
		next := placed{before: rest[:at[0]], name: rest[at[0]:at[1]]}
		if of.segments != nil && !slices.Contains(of.segments, next.name) {
			return p, fmt.Errorf("%s is no placeholder of san", next.name)
		}
		if len(p.placeholders) > 0 {
			if next.separator, err = separator(next.before, next.name); err != nil {
				return p, err
			}
		}
		p.placeholders = append(p.placeholders, next)
		rest = rest[at[1]:]
	}
	p.rest = rest
	if wild {
		p.wild, err = separator(rest, "*")
	}
	return p, err
}

// separator returns the last character of what is before a placeholder or "*".
func separator(before, what string) (string, error) {
	last, _ := utf8.DecodeLastRuneInString(before)
	if before == "" || unicode.IsLetter(last) || unicode.IsDigit(last) {
		return "", fmt.Errorf(`%s needs a separator before it, such as "/" or "-", without which the text of one client may also be that of another`, what)
	}
	return string(last), nil
}

// fill returns the text with the placeholders replaced, up to "*".
func (p *pattern) fill(values map[string]string) (string, error) {
	var b strings.Builder
	for _, of := range p.placeholders {
		value := values[of.name]
		if of.separator != "" && strings.Contains(value, of.separator) {
			return "", fmt.Errorf("%s is %q, which has the separator %q in it: use another separator in the access rules", of.name, value, of.separator)
		}
		b.WriteString(of.before + value)
	}
	return b.String() + p.rest, nil
}

// accepts reports whether a text is what the pattern is, filled.
func (p *pattern) accepts(text, filled string) bool {
	if p.wild == "" {
		return text == filled
	}
	rest, ok := strings.CutPrefix(text, filled)
	return ok && rest != "" && !strings.Contains(rest, p.wild)
}
