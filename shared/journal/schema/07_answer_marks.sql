CREATE TABLE answer_marks (
  mark BLOB NOT NULL,
  turn INTEGER NOT NULL REFERENCES turns (id)
);
CREATE INDEX answer_marks_by_mark ON answer_marks (mark);
CREATE INDEX answer_marks_by_turn ON answer_marks (turn);
