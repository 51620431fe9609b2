package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// looks has how lines look, as parameters of the escape sequence SGR (ECMA-48): a heading is bold; states are green, yellow and red.
var looks = map[styled.Style]int{styled.Heading: 1, styled.Good: 32, styled.Doubtful: 33, styled.Bad: 31}

// Print writes lines, as they are styled if out is a Writer with colours. Only the style of a line decides, never what it says.
func Print(out io.Writer, text styled.Text) error {
	v, ok := out.(*Writer)
	if !ok {
		_, err := io.WriteString(out, text.String())
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drawn = 0
	var b strings.Builder
	for _, line := range text {
		b.WriteString(v.painted(line.Style, escaped(line.Text)) + "\n")
	}
	_, err := io.WriteString(v.to, b.String())
	return err
}

// painted returns a line as its style looks. The line has no control of the terminal.
func (v *Writer) painted(style styled.Style, line string) string {
	if sgr := looks[style]; v.colours && sgr != 0 && line != "" {
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", sgr, line)
	}
	return line
}

// size is the columns and lines of a terminal.
type size struct{ width, height int }

// Redraws reports whether Redraw replaces what it wrote before.
func (v *Writer) Redraws() bool { return v.window != nil }

// Redraw writes lines in the place of those of the last Redraw, unless something else was written since, or the window has
// another size: nobody knows how many lines the text takes now. It needs Redraws. What does not fit the terminal is cut.
func (v *Writer) Redraw(text styled.Text) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.window()
	if now != v.within {
		v.drawn, v.within = 0, now
	}
	if most := max(1, now.height-1); len(text) > most {
		text = append(text[:most-1:most-1], styled.Line{Text: fmt.Sprintf("… %d more lines", len(text)-most+1)})
	}
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn) // up
	}
	b.WriteString("\x1b[J") // erase what is below
	for _, line := range text {
		visible := escaped(strings.ReplaceAll(line.Text, "\t", " "))
		b.WriteString(v.painted(line.Style, cut(visible, now.width)) + "\n")
	}
	v.drawn = len(text)
	_, err := io.WriteString(v.to, b.String())
	return err
}

// cut returns what of a line fits into some columns.
func cut(line string, columns int) string {
	used, fits := 0, 0 // fits: the bytes that leave a column for "…"
	for i, c := range line {
		if used += columnsOf(c); used > columns {
			return line[:fits] + "…"
		}
		if used < columns {
			fits = i + utf8.RuneLen(c)
		}
	}
	return line
}

// columnsOf returns how many columns a terminal gives a character: two to those of East Asia and to emoji, none to accents of the
// character before.
func columnsOf(c rune) int {
	switch {
	case unicode.In(c, unicode.Mn, unicode.Me):
		return 0
	case width.LookupRune(c).Kind() == width.EastAsianWide, width.LookupRune(c).Kind() == width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}
