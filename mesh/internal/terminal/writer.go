// Package terminal is where the command writes: it makes what is not printable visible, and on a terminal shows styles and
// replaces what it wrote before.
package terminal

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/dynxds/dynxds/internal/faults"
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
