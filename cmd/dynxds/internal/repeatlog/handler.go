package repeatlog

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dynxds/dynxds/internal/bounds"
)

// Handler is that of the log of a process that serves clients. It cuts texts to bounds.LogText, and it has the budget
// of lines that all [Log]s of the process share. Other lines, such as those of faults in a folder, have a larger
// budget of their own for each message (bounds.OtherLines).
type Handler struct {
	inner           slog.Handler
	clients, others *bounds.Lines
}

// NewHandler returns a Handler over another one.
func NewHandler(inner slog.Handler) *Handler {
	say := func(message string, omitted int) {
		log := slog.New(inner)
		log.Warn("log lines suppressed", "message", cut(message, bounds.LogName), "left_out", omitted)
	}
	return &Handler{inner, bounds.NewLines(bounds.ServerLines, say), bounds.NewLines(bounds.OtherLines, say)}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	omitted, ok := h.others.Take(r.Message, "")
	if !ok {
		h.others.Omit(r.Message)
		return nil
	}
	attrs := make([]slog.Attr, 0, r.NumAttrs()+1)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, cutAttr(a))
		return true
	})
	bounded := slog.NewRecord(r.Time, r.Level, cut(r.Message, bounds.LogText), r.PC)
	bounded.AddAttrs(leftOut(attrs, omitted)...)
	return h.inner.Handle(ctx, bounded)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	bounded := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		bounded[i] = cutAttr(a)
	}
	return &Handler{h.inner.WithAttrs(bounded), h.clients, h.others}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.inner.WithGroup(name), h.clients, h.others}
}

// leftOut says how many lines of a kind were left out before this one.
func leftOut(attrs []slog.Attr, omitted int) []slog.Attr {
	if omitted > 0 {
		attrs = append(attrs, slog.Int("left_out", omitted))
	}
	return attrs
}

// cutAttr cuts the texts in an attribute.
func cutAttr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		value = slog.StringValue(cut(value.String(), bounds.LogText))
	case slog.KindGroup:
		group := make([]slog.Attr, len(value.Group()))
		for i, member := range value.Group() {
			group[i] = cutAttr(member)
		}
		value = slog.GroupValue(group...)
	case slog.KindAny:
		switch v := value.Any().(type) {
		case error, fmt.Stringer, []string:
			if text := fmt.Sprint(v); len(text) > bounds.LogText {
				value = slog.StringValue(cut(text, bounds.LogText))
			}
		}
	}
	return slog.Attr{Key: a.Key, Value: value}
}

// cut returns a text, as it is if it is short: handlers make it printable.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return bounds.Text(text, limit)
}
