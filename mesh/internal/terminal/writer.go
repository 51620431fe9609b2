// Package terminal is where the command writes: it makes what is not printable visible, and on a terminal shows styles and
// replaces what it wrote before.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Writer is for all that the command prints: nothing that was in a file or an answer gets control of the
// terminal, whichever command prints it (faults.Printable). Line breaks and tabs stay: to keep a text from adding lines is up to
// who prints it as one line.
//
// It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	to io.Writer
	// colours says that styles are shown.
	colours bool
	// window returns the present size of the terminal; nil if it cannot redraw.
	window func() size
	// drawn is how many lines the last Redraw wrote, in a window of the size within.
	drawn  int
	within size
}

// New returns a Writer. If to is a terminal, and the environment does not forbid it, Print shows styles, and Redraw replaces
// text.
func New(to io.Writer) *Writer {
	w := &Writer{to: to}
	file, ok := to.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" || os.Getenv("CI") != "" {
		return w
	}
	window := func() (s size) {
		s.width, s.height, _ = term.GetSize(int(file.Fd()))
		return s
	}
	if s := window(); s.width > 1 && s.height > 1 {
		w.window = window
	}
	w.colours = os.Getenv("NO_COLOR") == ""
	return w
}

// Write writes text. Whoever prints writes whole characters: the parts of one that is divided appear as U+FFFD.
func (v *Writer) Write(data []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drawn = 0
	if _, err := io.WriteString(v.to, escaped(string(data))); err != nil {
		return 0, err
	}
	return len(data), nil
}

// escaped returns text without control of a terminal.
func escaped(text string) string { return faults.Printable(text, "\n\t") }

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
