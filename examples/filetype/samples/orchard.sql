-- Trees of an orchard and what they bore.
CREATE TABLE tree (
    id       INTEGER PRIMARY KEY,
    species  VARCHAR(40) NOT NULL,
    planted  DATE NOT NULL,
    row_no   INTEGER CHECK (row_no > 0)
);

CREATE TABLE harvest (
    tree_id  INTEGER NOT NULL REFERENCES tree (id),
    year     INTEGER NOT NULL,
    kilos    NUMERIC(6, 1) NOT NULL,
    PRIMARY KEY (tree_id, year)
);

INSERT INTO tree (id, species, planted, row_no) VALUES
    (1, 'apple', '2009-11-02', 1),
    (2, 'apple', '2009-11-02', 1),
    (3, 'pear', '2012-03-18', 2);

INSERT INTO harvest VALUES (1, 2022, 81.5), (2, 2022, 77.0), (3, 2022, 40.2);

SELECT t.species, h.year, SUM(h.kilos) AS total
FROM tree AS t
JOIN harvest AS h ON h.tree_id = t.id
GROUP BY t.species, h.year
ORDER BY total DESC;
