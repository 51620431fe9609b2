package repeatlog

import (
	"fmt"
	"log/slog"

	"github.com/dynxds/dynxds/internal/bounds"
)

// CutAttr is for slog.HandlerOptions.ReplaceAttr: it cuts texts, which clients may have chosen, to bounds.LogText.
func CutAttr(_ []string, a slog.Attr) slog.Attr {
	switch value := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(Cut(value, bounds.LogText))
	case error, fmt.Stringer, []string:
		if text := fmt.Sprint(value); len(text) > bounds.LogText {
			a.Value = slog.StringValue(Cut(text, bounds.LogText))
		}
	}
	return a
}

// Cut returns a text of about limit bytes at most, as it is if it is short: handlers make it printable.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return bounds.Text(text, limit)
}
